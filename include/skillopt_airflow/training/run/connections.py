"""The outside world of a run, as its stages ask for it; the caller says where it comes from."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup, StorageGroup
from skillopt_airflow.core.config.sampling import MODEL_ATTEMPTS, OutputForm
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role
from skillopt_airflow.core.values.model_protocols import Optimizer, Target
from skillopt_airflow.core.values.types import ModelCall

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.gateway.web_search import SearchUpstream
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.objects import ObjectStore

OnCall = Callable[[ModelCall], None]
Begin = Callable[[], None]
"""Called before each request to a model; raises BudgetUsedUp if the run's budget allows none."""


class Connections(Protocol):
    """Opens buckets and models, and knows what models cost and which sandbox image is there."""

    def s3_client(self, storage: StorageGroup) -> "S3Client":
        """Return the client that reads data sets behind s3:// addresses."""

    def object_store(self, storage: StorageGroup, bucket: str) -> "ObjectStore":
        """Open a bucket."""

    def optimizer(
        self,
        model: ModelGroup,
        on_call: OnCall,
        begin: Begin,
        output: OutputForm = "auto",
        attempts: int = MODEL_ATTEMPTS,
    ) -> AbstractContextManager[Optimizer]:
        """Open the optimizer for a `with` block; report every call."""

    def judge(
        self,
        model: ModelGroup,
        on_call: OnCall,
        begin: Begin,
        output: OutputForm = "auto",
        attempts: int = MODEL_ATTEMPTS,
    ) -> AbstractContextManager[Optimizer]:
        """Open the model that judges answers, which is asked as the optimizer is."""

    def target(self, model: ModelGroup, on_call: OnCall, begin: Begin) -> AbstractContextManager[Target]:
        """Open the target outside of a sandbox, for questions about what it did; report every call."""

    def upstream(self, model: ModelGroup) -> "Upstream":
        """Return the target's address and credentials, for the gateway of a sandbox."""

    def search(self, search: SearchGroup) -> "SearchUpstream":
        """Return the search server's address and credentials, for the gateway of a sandbox."""

    def prices(self, config: TrainConfig) -> Prices:
        """Return what the models cost, as far as it is known."""

    def item_images(self, config: TrainConfig, names: Sequence[str]) -> None:
        """Have named images of items on the engine; raise ImageMissing, with all that are missing."""

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        """Check that the models of these roles and the engine answer; return the digest of the sandbox image."""


def published_skills(connections: Connections, storage: StorageGroup, benchmark: str, target: str) -> "ArtifactStore":
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.keys import ArtifactKeys

    store = connections.object_store(storage, storage.artifact_bucket)
    return ArtifactStore(store, ArtifactKeys(storage.prefix, benchmark, target))
