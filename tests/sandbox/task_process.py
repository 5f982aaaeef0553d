"""`python -m tests.sandbox.task_process`: a task in a process of its own, which a test may kill."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.store.objects import ObjectStore
from tests.sandbox.fake_workload import FakeOperator, FakeWorkload

PROJECT = Path(__file__).resolve().parents[2]


@contextmanager
def task_process(
    fake: FakeWorkload, docker_host: str, store: ObjectStore | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The workload under way in another process, which has ended when the block has."""
    task = subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, cwd=PROJECT, text=True)
    try:
        assert task.stdin is not None
        with task.stdin as stdin:
            stdin.write(described(fake, docker_host, store))
        yield task
    finally:
        task.kill()
        task.wait()


def described(fake: FakeWorkload, docker_host: str, store: ObjectStore | None = None) -> str:
    """What such a process reads."""
    given = {
        "items": [item.model_dump() for item in fake.items],
        "upstream": fake.upstream.dump_with_secrets(),
        "settings": fake.settings.model_dump(),
        "limits": fake.limits.model_dump(),
        "labels": dict(fake.labels),
        "image": fake.image,
        "one_item_each": fake.one_item_each,
        "docker_host": docker_host,
        "store": None if store is None else [store._client.meta.endpoint_url, store.bucket],
    }
    return json.dumps(given)


if __name__ == "__main__":
    told = json.loads(sys.stdin.read())
    workload = FakeWorkload(
        items=[Item.model_validate(item) for item in told["items"]],
        upstream=Upstream.model_validate(told["upstream"]),
        settings=RolloutSettings.model_validate(told["settings"]),
        limits=SandboxGroup.model_validate(told["limits"]),
        labels=told["labels"],
        image=told["image"],
        one_item_each=told["one_item_each"],
    )
    store = None
    if told["store"] is not None:
        from tests.store.conftest import make_client

        endpoint, bucket = told["store"]
        store = ObjectStore(make_client(endpoint, signature_version="s3v4"), bucket)
    FakeOperator(fake=workload, store=store, docker_url=told["docker_host"]).execute({})
    left = {item: {name: content.decode() for name, content in files.items()} for item, files in workload.left.items()}
    print(json.dumps({"statuses": workload.statuses(), "left": left}))
