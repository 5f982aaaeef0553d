"""kill -9 of the worker at every write of publishing and of a rollback, against a real S3 server over HTTP.

The worker is a process of its own behind a proxy, which kills it right before or right after the server has got the
n-th PUT. A deployment reads after each of them.
"""

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.store.artifacts import ArtifactStore, is_version
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.champion.approval import rollback_request
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication
from tests.store.killing_proxy import KillingProxy, proxied
from tests.store.polling_reader import PollingReader
from tests.store.test_artifacts import provenance
from tests.training.in_process import Training
from tests.training.publish_worker import KEYS, move_back, publish
from tests.training.test_kill_at_every_write import FIRST, FORMER, MOVES, NAMED, WRITES, moved_back, published_once

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RUNS = "killed-runs"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("aws_variables")]
Work = tuple[Callable[..., None], tuple[str, ...]]


@pytest.fixture(scope="module")
def workers() -> Any:
    """Processes that have imported all, and nothing else of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.publish_worker"])
    return context


@pytest.fixture(scope="module")
def training(s3_client: "S3Client") -> Training:
    """A finished run whose documents are on the server; it passed the gate against the seed and against a champion."""
    training = Training.of(
        train__num_epochs=1, train__steps_per_epoch=1, evaluation__val_limit=None, evaluation__test_limit=None
    )
    training()
    for name, champion in (("first", False), ("second", True)):
        artifacts = ArtifactStore(bucket(s3_client, f"killed-{name}"), KEYS)
        if champion:
            artifacts.publish(FORMER, provenance("former"), None)
        training.run_containers(plan_publication(training.run, artifacts, name, PublishingGroup(gate_policy="strict")))
        assert gate_publication(training.run, name) == ""
    runs = bucket(s3_client, RUNS)
    for key, body in training.store.objects.items():
        runs.put_bytes(key, body)
    return training


def bucket(client: "S3Client", name: str) -> ObjectStore:
    client.create_bucket(Bucket=name)
    return ObjectStore(client, name)


def copy_of(client: "S3Client", name: str, tag: str) -> ObjectStore:
    """The same objects in a bucket of their own."""
    origin, copy = ObjectStore(client, name), bucket(client, f"{name}-{tag}")
    for key in origin.list_keys(""):
        copy.put_bytes(key, origin.get_bytes(key))
    return copy


def run(
    workers: Any, endpoint: str, work: Work, look: Callable[[], None], at: int = -1, after: bool = False
) -> tuple[int, list[str]]:
    """The exit code of a worker, and the names of what it has put; somebody looks after each."""
    proxy = KillingProxy(endpoint, at, after, look)
    with proxied(proxy) as address:
        task, arguments = work
        worker = workers.Process(target=task, args=(address, *arguments))
        worker.start()
        proxy.victim.set_result(worker.pid)
        worker.join()
    names = [path.rpartition("/")[2] for path in proxy.put]
    return worker.exitcode, [NAMED if is_version(name) else name for name in names]


def kill_and_retry(
    workers: Any, endpoint: str, work: Work, look: Callable[[], None], at: int, after: bool, writes: list[str]
) -> None:
    """A worker that dies at a write, then one that does not."""
    code, put = run(workers, endpoint, work, look, at, after)
    assert (code, put) == (-signal.SIGKILL, writes[: at + 1])
    code, put = run(workers, endpoint, work, look)
    assert code == 0


def kills(writes: list[str]) -> list[tuple[int, bool]]:
    """Before the first write and after each; before any other is the same as after the one that precedes it."""
    return [(0, False), *((at, True) for at in range(len(writes)))]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "at", "after"), [(name, *kill) for name, writes in WRITES.items() for kill in kills(writes)]
)
def test_a_publisher_killed_at_any_write_is_retried_to_one_version_and_a_valid_alias(
    training: Training,
    workers: Any,
    s3_endpoint: str,
    s3_client: "S3Client",
    tmp_path: Path,
    name: str,
    at: int,
    after: bool,
) -> None:
    skill, formers = training.skill(), [FORMER] * (name == "second")
    store = copy_of(s3_client, f"killed-{name}", f"{at}-{after}".lower())
    work: Work = (publish, (RUNS, store.bucket, training.run.ref.run, name))
    reader = PollingReader(store, KEYS, tmp_path)
    with reader.looking_when_asked() as look:
        kill_and_retry(workers, s3_endpoint, work, look, at, after, WRITES[name])
    runs = ObjectStore(s3_client, RUNS)
    versions = published_once(training, ArtifactStore(store, KEYS), runs, [*formers, skill])
    # The reader saw nothing but what was published, each version once in its order.
    assert list(dict.fromkeys(reader.seen)) == versions


@pytest.mark.nightly
def test_a_rollback_killed_at_any_write_is_retried_to_a_valid_alias(
    workers: Any, s3_endpoint: str, s3_client: "S3Client", tmp_path: Path
) -> None:
    for at, after in kills(MOVES):
        store = bucket(s3_client, f"killed-back-{at}-{after}".lower())
        artifacts = ArtifactStore(store, KEYS)
        first = artifacts.publish(FIRST, provenance("first"), None).version
        second = artifacts.publish(FORMER, provenance("second"), artifacts.champion.read()).version
        request = rollback_request(artifacts, "rollback", first, "users complained", approval=False)
        work: Work = (move_back, (store.bucket, request.model_dump_json()))
        reader = PollingReader(store, KEYS, tmp_path / f"{at}-{after}")
        with reader.looking_when_asked() as look:
            kill_and_retry(workers, s3_endpoint, work, look, at, after, MOVES)
        moved_back(artifacts, first, second)
        assert reader.seen[-1] == first
        assert artifacts.list_versions() == [first, second]
