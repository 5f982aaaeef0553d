"""What the tasks `publish` and `move_back` do, for processes that are killed."""

from skillopt_airflow.core.config import StorageGroup
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.publishing import artifact_store, publish_best
from skillopt_airflow.training.reporting import write_report
from skillopt_airflow.training.rollback import RollbackRequest, roll_back
from skillopt_airflow.training.run import RunRef, TrainingRun
from tests.store.conftest import make_client

KEYS = ArtifactKeys("", "searchqa", "openai-chat:stand-in-target")


def publish(endpoint: str, runs: str, artifacts: str, run: str, name: str) -> None:
    """Publish the best skill of a run, under the name of a publication that passed the gate."""
    client = make_client(endpoint)
    ref = RunRef(benchmark="searchqa", run=run, storage=StorageGroup(bucket=runs, artifact_bucket=artifacts))
    opened = TrainingRun(ref, ObjectStore(client, runs))
    published = publish_best(opened, artifact_store(opened, ObjectStore(client, artifacts)), name)
    write_report(opened, published)


def move_back(endpoint: str, artifacts: str, request: str) -> None:
    """Roll back."""
    store = ArtifactStore(ObjectStore(make_client(endpoint), artifacts), KEYS)
    roll_back(store, RollbackRequest.model_validate_json(request))
