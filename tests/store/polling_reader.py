"""Somebody who looks at the champion all the while that others publish, as deployments do."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from skillopt_airflow.consumer import NotPublished, SkillClient
from skillopt_airflow.core.values.types import sha256
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore

PAUSE = 0.005
"""Seconds between two looks, so that the others get on."""


class PollingReader:
    """Reads by the client that deployments use, and by the store; `seen` are the versions, in order."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys, cache: Path) -> None:
        self.client = SkillClient(
            store.bucket,
            keys.benchmark,
            keys.target,
            prefix=keys.prefix,
            endpoint_url=store._client.meta.endpoint_url,
            cache=cache,
            timeout=60,
        )
        self.artifacts = ArtifactStore(store, keys)
        self.seen: list[str] = []

    def look(self) -> None:
        """Raises if what the alias names is not whole."""
        champion = self.artifacts.champion.read()
        if champion is not None:
            assert sha256(self.artifacts.read(champion.version).skill) == champion.sha256
        try:
            skill = self.client.get()
        except NotPublished:
            assert not self.seen
            return
        assert not skill.problem, skill.problem
        assert sha256(skill.text) == skill.sha256
        self.seen.append(skill.version)

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Look until the end, and once more then."""
        stop = threading.Event()

        def poll() -> None:
            while not stop.wait(PAUSE):
                self.look()

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(poll)
            try:
                yield
            finally:
                stop.set()
            looking.result()
        self.look()

    @contextmanager
    def looking_when_asked(self) -> Iterator[Callable[[], None]]:
        """Look whenever the function is called, until which it does not return, and once more in the end."""
        looks: list[Future[None]] = []

        def look() -> None:
            looks.append(pool.submit(self.look))
            wait(looks)

        with ThreadPoolExecutor(1) as pool:
            yield look
        for done in looks:
            done.result()
        self.look()
