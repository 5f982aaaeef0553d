"""What the tasks `publish` and `move_back` do, for processes that are killed."""

from typing import TYPE_CHECKING
from unittest.mock import patch

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.report import plots, run_page
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.champion.approval import RollbackRequest, roll_back
from skillopt_airflow.training.champion.publication import publish_best
from skillopt_airflow.training.report.reporting import write_report
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.store.conftest import make_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEYS = ArtifactKeys("", "searchqa", "openai-chat:stand-in-target")

# What a process reads and compiles once, done before the workers are forked from one that has imported this.
make_client("http://127.0.0.1:9").close()
run_page._environment().get_template("report.html")


class Buckets:
    """The two buckets behind a client, and nothing else."""

    def __init__(self, client: "S3Client", runs: str, artifacts: str) -> None:
        self._client, self._runs, self._artifacts = client, runs, artifacts

    def object_store(self, storage: StorageGroup, bucket: str) -> ObjectStore:
        return ObjectStore(self._client, self._artifacts if bucket == storage.artifact_bucket else self._runs)


def opened(client: "S3Client", runs: str, artifacts: str, run: str) -> TrainingRun:
    ref = RunRef(benchmark="searchqa", run=run, storage=StorageGroup())
    return TrainingRun(ref, Buckets(client, runs, artifacts))  # type: ignore[arg-type]


def publish(endpoint: str, runs: str, artifacts: str, run: str, name: str) -> None:
    """Publish the best skill of a run, under the name of a publication that passed the gate."""
    ours = opened(make_client(endpoint), runs, artifacts, run)
    published = publish_best(ours, ours.published, name)
    # To draw takes most of the time, and is no write.
    with patch.multiple(plots, learning_curve=str, costs=str):
        write_report(ours, published)


def move_back(endpoint: str, artifacts: str, request: str) -> None:
    """Roll back."""
    store = ArtifactStore(ObjectStore(make_client(endpoint), artifacts), KEYS)
    roll_back(store, RollbackRequest.model_validate_json(request))
