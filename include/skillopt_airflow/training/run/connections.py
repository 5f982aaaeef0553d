"""A run's connections to the outside, as a protocol."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup, StorageGroup
from skillopt_airflow.core.config.sampling import MODEL_ATTEMPTS, OutputForm
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role
from skillopt_airflow.core.values.model_protocols import Optimizer, Target
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.store.keys import ArtifactKeys

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.gateway.web_search import SearchUpstream
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.objects import ObjectStore

OnCall = Callable[[ModelCall], None]
Begin = Callable[[], None]
"""Called before each model request; raises BudgetUsedUp if the budget allows none."""


class Connections(Protocol):
    """Opens buckets and models; knows the models' prices and the sandbox image."""

    def s3_client(self, storage: StorageGroup) -> "S3Client":
        """Return the client for datasets at s3:// URLs."""

    def object_store(self, storage: StorageGroup, bucket: str) -> "ObjectStore":
        """Open a bucket."""

    def optimizer(
        self, model: ModelGroup, on_call: OnCall, begin: Begin, output: OutputForm, attempts: int = MODEL_ATTEMPTS
    ) -> AbstractContextManager[Optimizer]:
        """Open the optimizer; report each call."""

    def judge(
        self, model: ModelGroup, on_call: OnCall, begin: Begin, output: OutputForm, attempts: int = MODEL_ATTEMPTS
    ) -> AbstractContextManager[Optimizer]:
        """Open the judge model, with the optimizer's interface."""

    def target(self, model: ModelGroup, on_call: OnCall, begin: Begin) -> AbstractContextManager[Target]:
        """Open the target outside a sandbox, for questions about its trajectories; report each call."""

    def upstream(self, model: ModelGroup) -> "Upstream":
        """Return the target's URL and credentials for a sandbox's gateway."""

    def search(self, search: SearchGroup) -> "SearchUpstream":
        """Return the search server's URL and credentials for a sandbox's gateway."""

    def prices(self, config: TrainConfig) -> Prices:
        """Return the known prices of the models."""

    def item_images(self, config: TrainConfig, names: Sequence[str]) -> None:
        """Pull the named images of items; raise ImageMissing, which lists all missing images."""

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        """Check these roles' models and the engine; return the sandbox image's digest."""


def published_skills(connections: Connections, storage: StorageGroup, benchmark: str, target: str) -> "ArtifactStore":
    from skillopt_airflow.store.artifacts import ArtifactStore

    store = connections.object_store(storage, storage.artifact_bucket)
    return ArtifactStore(store, ArtifactKeys(storage.prefix, benchmark, target))
