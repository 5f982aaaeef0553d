"""Knobs of a run's resources: budget, models, data, containers, the object store and web search."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from skillopt_airflow.core.config.group import Group, ObjectName, Positive, spelled
from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.sampling import MAX_THOUGHTS, Effort

TRIES = 4
TRY_SECONDS = 20.0
MAX_PAUSE = 20.0
"""Seconds between two attempts."""
SEARCH_PATIENCE = TRIES * (TRY_SECONDS + MAX_PAUSE)
"""Seconds that all tries of a search can take."""


class SearchGroup(Group):
    """Web search of the target."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) of a search server, such as skillopt_search. Its extra names the kind: searxng,
    brave or tavily. Default: search an item's own documents, without network access."""


JUDGE_CONN_ID = "skillopt_judge"
"""Default connection of the judge, if Airflow has it."""
RATIO = r"^0*[1-9]\d*(:0*[1-9]\d*){2,3}$"
# YAML reads 2:1:7 without quotes as a number.
RATIO_SPELLED = "write three or four whole numbers from 1, with colons and in quotes: '2:1:7'"
# Docker reads 0 as no limit.
MEMORY = r"^[1-9]\d*[kmg]$"
MEMORY_SPELLED = "write it as 512m or 4g"
PREFIX = r"^([^/]+/)*$"


class Price(Group):
    """A model's price in US dollars per million tokens."""

    input: Annotated[float, Field(ge=0.0)]
    """US dollars per million tokens that the model reads."""
    output: Annotated[float, Field(ge=0.0)]
    """US dollars per million tokens that the model writes."""


class BudgetGroup(Group):
    """Limits on model calls. A run stops after the current step if another step would exceed one."""

    max_calls: Positive | None = None
    """Maximum model calls of the run, all models together. Default: no limit."""
    max_tokens: Positive | None = None
    """Maximum tokens that all models together read and write. Default: no limit."""
    max_usd: Annotated[float, Field(gt=0.0)] | None = None
    """Maximum cost in US dollars. Needs a known price for each model that the run calls. Default: no limit."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by model, such as openai-chat:gpt-5. They override the table of the genai-prices package."""

    @property
    def is_limited(self) -> bool:
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_usd))


class ModelGroup(Group):
    """The target, optimizer and judge models, their connections and sampling."""

    target_conn_id: ObjectName = "skillopt_target"
    """Airflow connection (type pydanticai) of the target model, which executes items."""
    optimizer_conn_id: ObjectName = "skillopt_optimizer"
    """Airflow connection (type pydanticai) of the optimizer model, which writes edits."""
    target: ObjectName | None = None
    """Target model, such as openai-chat:gpt-5. Default: the connection's model."""
    optimizer: ObjectName | None = None
    """Optimizer model, such as openai-chat:gpt-5. Default: the connection's model."""
    judge: ObjectName | None = None
    """Judge model, for benchmarks that use one. Its connection is skillopt_judge, or the optimizer's if that doesn't
    exist. Default: the connection's model."""
    harness: HarnessName = "chat"
    """Program that runs an item: a conversation, an agent with the benchmark's tools, or one of two agent CLIs."""
    max_turns: Positive = 1
    """Maximum answers of the target per item, in a conversation with the benchmark's feedback. With harness tools:
    maximum model calls, at least 2. The agent CLIs set their own limits."""
    reasoning_effort: Effort | None = None
    """Reasoning effort of the target, such as low, or its maximum thinking tokens. Or on or off, for servers with this
    switch (Qwen on vLLM). Default: the provider's."""
    optimizer_reasoning_effort: Effort | None = None
    """Reasoning effort of the optimizer, with the same values. Default: the provider's."""
    optimizer_temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the optimizer. Default: the provider's."""
    optimizer_max_tokens: Positive | None = None
    """Maximum tokens per answer of the optimizer or the judge, thinking included. Default: 1,000 to 32,000 by the
    purpose of the call, plus thinking. A higher value doesn't raise these."""
    batch: bool = False
    """Send evaluation and test items as one job of the provider's batch API. Costs half and takes hours instead of
    minutes. For harness chat with one turn. Fixed when the DAG is parsed."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the target. Default: the provider's."""
    max_tokens: Positive = 16_384
    """Maximum tokens per answer of the target."""
    concurrency: Positive = 32
    """Maximum concurrent model calls of the run's rollouts. Containers that run at the same time share it equally, with
    at least 1 each."""
    call_timeout: Annotated[float, Field(gt=0.0)] = 120.0
    """Seconds per attempt of a model call. A call has five attempts. An optimizer call ends after five times this
    timeout in any case."""

    @property
    def optimizer_thoughts(self) -> int:
        """Return the optimizer's maximum thinking tokens per answer; 0 if thinking isn't set."""
        effort = self.optimizer_reasoning_effort
        if isinstance(effort, int):
            return effort
        return 0 if effort in (None, "off") else MAX_THOUGHTS

    @model_validator(mode="after")
    def _budget_of_thinking(self) -> Self:
        for role, effort, most in (
            ("", self.reasoning_effort, self.max_tokens),
            ("optimizer_", self.optimizer_reasoning_effort, self.optimizer_max_tokens),
        ):
            if isinstance(effort, int) and most is not None and effort >= most:
                raise ValueError(
                    f"{role}max_tokens = {most} must exceed {role}reasoning_effort = {effort}, a part of it"
                )
        return self

    @model_validator(mode="after")
    def _batchable(self) -> Self:
        if self.batch and (self.harness != "chat" or self.max_turns > 1):
            raise ValueError("batch sends single answers: it needs harness chat and max_turns 1")
        return self


class DataGroup(Group):
    """The source of the items and their split."""

    uri: ObjectName = "sample"
    """Local path (relative to the benchmark's folder), file:// or s3:// URL of a file or a split folder. A `*` in a
    file name matches any characters."""
    split_mode: Literal["ratio", "split_dir", "manifest"] = "ratio"
    """Source of the splits. ratio divides one file (such as .json, .jsonl, .csv or .parquet). split_dir reads
    train|val|test/items.json, or another of these extensions, and publish/items.json if it exists. manifest reads
    either and splits it by split_manifest."""
    split_manifest: ObjectName | None = None
    """Path or URL, like uri, of a JSON document that lists the ids per split, such as another run's data_manifest.json.
    Or a folder with lists of ids in train|val|test/items.json. For split_mode manifest."""
    split_ratio: Annotated[str, Field(pattern=RATIO), spelled(RATIO, RATIO_SPELLED)] = "2:1:7"
    """Shares of train, val and test in ratio mode. A fourth number is the share of publish."""
    split_seed: int = 42
    """Seed of the shuffle before a ratio split."""
    corpus: ObjectName | None = None
    """Path or URL, like uri, of a folder of documents that all items share. Every sandbox can read it. Files and
    folders whose names begin with a dot are left out."""
    limit: Positive | None = None
    """Maximum items per split; the first ones are used. Default: all."""
    task_type: ObjectName | None = None
    """Key in each record of its task type, or of a list of types. Scores are also reported per type. A nested key is
    written as metadata.subject."""

    @model_validator(mode="after")
    def _manifest(self) -> Self:
        if (self.split_mode == "manifest") != (self.split_manifest is not None):
            raise ValueError("split_mode manifest and split_manifest require each other. Set both or neither")
        return self


class SandboxGroup(Group):
    """The containers or pods that rollouts run in."""

    engine: Literal["docker", "kubernetes"] = "docker"
    """Engine of the sandboxes: Docker containers, or pods of a Kubernetes cluster. Fixed when the DAG is parsed."""
    conn_id: ObjectName | None = None
    """Airflow connection of a remote engine (type docker), or of the cluster and the pods' namespace (type kubernetes).
    Default: the worker's own engine, or kubernetes_default."""
    image: ObjectName | None = None
    """Image that contains include/skillopt_airflow/rollout. Default: the project's image for the harness."""
    registry: ObjectName | None = None
    """Registry, or a part of one, of the project's own images, such as registry.example.com/skillopt. These are the
    images whose names begin with skillopt- and have no slash. Their tags are pulled again per run. Default: the
    engine's own images."""
    items_per_container: Positive = 2000
    """Maximum items per chunk. The items of a chunk share a container unless they execute code from the target. Chunks
    are usually smaller, see max_containers; a stage has at most 1,024 chunks."""
    max_containers: Positive = 4
    """Maximum concurrent containers per stage; its items are divided evenly. Fixed when the DAG is parsed."""
    cpus: Annotated[float, Field(gt=0.0)] = 1.0
    """Processors per container."""
    memory: Annotated[str, Field(pattern=MEMORY), spelled(MEMORY, MEMORY_SPELLED)] = "512m"
    """Memory per container, including swap."""
    output_mb: Positive = 256
    """Maximum megabytes that one container writes."""
    timeout: Positive = 900
    """Seconds that one container may run without finishing an item. Fixed when the DAG is parsed."""
    code_timeout: Positive = 60
    """Seconds per execution of code from the target."""
    test_timeout: Positive = 900
    """Seconds for a repository's tests, which run in a separate container. Fixed when the DAG is parsed."""
    item_registry: str = ""
    """Registry, or a part of one, to prepend to the images that items name, such as registry.example.com/mirror. Empty:
    use the names as they are."""
    pool: ObjectName = "default_pool"
    """Airflow pool of the tasks that run containers or call the optimizer. Fixed when the DAG is parsed."""
    queue: ObjectName | None = None
    """Queue of the tasks that need a Docker engine, for executors with queues. Default: the executor's. Fixed when the
    DAG is parsed."""

    @property
    def gateway_image(self) -> str:
        """Return the image of the model gateway and the courier, on a remote engine and in pods."""
        return self.registered("skillopt-gateway:latest")

    @property
    def has_own_image(self) -> bool:
        return self.image is None or _is_own(self.image)

    def registered(self, image: str) -> str:
        """Return the full name of an image, with the registry if it's one of the project's own."""
        return f"{self.registry}/{image}" if _is_own(image) and self.registry is not None else image

    def renews(self, image: str) -> bool:
        """Return whether to pull an image even if the engine has it, because its tag may have moved."""
        return self.registry is not None and image.startswith(f"{self.registry}/") and "@" not in image


def _is_own(image: str) -> bool:
    return image.startswith("skillopt-") and "/" not in image


class StorageGroup(Group):
    """The object store's connection, buckets and prefix."""

    conn_id: ObjectName = "skillopt_s3"
    """Airflow connection (type aws) of the object store."""
    bucket: ObjectName = "skillopt"
    """Bucket of runs, trajectories and usage."""
    artifact_bucket: ObjectName = "skillopt-artifacts"
    """Bucket of the published skills."""
    prefix: Annotated[str, Field(pattern=PREFIX), spelled(PREFIX, "write it as team-a/ or a/b/")] = ""
    """Key prefix in both buckets: empty, or with a slash at the end."""
