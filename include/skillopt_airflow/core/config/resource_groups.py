"""The knobs of a run's resources: budget, models, data, containers, object store and searches."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from skillopt_airflow.core.config.group import Group, ObjectName, Positive, spelled
from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.sampling import MAX_THOUGHTS, Effort

TRIES = 4
TRY_SECONDS = 20.0
MAX_PAUSE = 20.0
"""Seconds between two attempts."""
SEARCH_PATIENCE = TRIES * (TRY_SECONDS + MAX_PAUSE)
"""Seconds after which all attempts have ended."""


class SearchGroup(Group):
    """The search server of the target."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) of a search server, such as skillopt_search; its extra has the kind: searxng,
    brave or tavily. Default: none; searches use the documents of the item, and nothing leaves the host."""


JUDGE_CONN_ID = "skillopt_judge"
"""Default connection of the judge, if Airflow has it."""
RATIO = r"^\d+:\d+:\d+(:\d+)?$"
# YAML reads 2:1:7 without quotes as a number.
RATIO_SPELLED = "write three or four whole numbers, with colons and in quotes: '2:1:7'"
# In Docker, 0 means no limit.
MEMORY = r"^[1-9]\d*[kmg]$"
MEMORY_SPELLED = "write it as 512m or 4g"
PREFIX = r"^([^/]+/)*$"


class Price(Group):
    """A model's price in US dollars per million tokens."""

    input: Annotated[float, Field(ge=0.0)]
    """Price of tokens that the model reads."""
    output: Annotated[float, Field(ge=0.0)]
    """Price of tokens that the model writes."""


class BudgetGroup(Group):
    """Limits on model calls; a run that would exceed one stops after the current step."""

    max_calls: Positive | None = None
    """Model calls of the run, for target and optimizer together. Default: no limit."""
    max_tokens: Positive | None = None
    """Tokens read and written, for target and optimizer together. Default: no limit."""
    max_usd: Annotated[float, Field(gt=0.0)] | None = None
    """US dollars; requires a known price for each model of the run. Default: no limit."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by model, such as openai-chat:gpt-5; they take precedence over the package genai-prices."""

    @property
    def is_limited(self) -> bool:
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_usd))


class ModelGroup(Group):
    """The target and optimizer models, the judge model, and their connections."""

    target_conn_id: ObjectName = "skillopt_target"
    """Airflow connection (type pydanticai) of the target model."""
    optimizer_conn_id: ObjectName = "skillopt_optimizer"
    """Airflow connection (type pydanticai) of the optimizer model."""
    target: ObjectName | None = None
    """Target model, such as openai-chat:gpt-5. Default: the connection's model."""
    optimizer: ObjectName | None = None
    """Optimizer model. Default: the connection's model."""
    judge: ObjectName | None = None
    """Judge model, for benchmarks that use one. Its connection is skillopt_judge if it exists, else the optimizer's.
    Default: the connection's model."""
    harness: HarnessName = "chat"
    """Program that runs an item: a conversation, an agent with the benchmark's tools, or one of two agent CLIs."""
    max_turns: Positive = 1
    """Maximum answers of the target per item: turns of a conversation with the benchmark's feedback, or model calls of
    harness tools, which needs at least 2. The agent CLIs set their own limits."""
    reasoning_effort: Effort | None = None
    """Reasoning effort of the target, such as low; or its most tokens of thinking; or on or off, for servers with such
    a switch (Qwen on vLLM). Default: the provider's."""
    optimizer_reasoning_effort: Effort | None = None
    """The same of the optimizer. Default: the provider's."""
    optimizer_temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the optimizer. Default: the provider's."""
    optimizer_max_tokens: Positive | None = None
    """Maximum tokens per answer of the optimizer or the judge, including thinking. Default: 1,000 to 32,000 by the
    purpose of the call, plus its thinking. A higher value doesn't raise these."""
    batch: bool = False
    """Send evaluation and test items as one job of the provider's batch API, at half the price and in hours instead of
    minutes. For harness chat with one turn. Fixed at DAG parse time."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the target. Default: the provider's."""
    max_tokens: Positive = 16_384
    """Maximum tokens per answer of the target."""
    concurrency: Positive = 32
    """Concurrent model calls of the run's rollouts; concurrent containers get equal shares, at least 1 each."""
    call_timeout: Annotated[float, Field(gt=0.0)] = 120.0
    """Timeout in seconds per attempt of a model call. A call has five attempts; a call of the optimizer ends after
    five timeouts."""

    @property
    def optimizer_thoughts(self) -> int:
        """The maximum of the optimizer's thinking tokens per answer; 0 if thinking isn't set."""
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
                    f"{role}reasoning_effort = {effort} is included in {role}max_tokens = {most}. Lower it"
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
    """Local path (relative to the benchmark's folder), file:// or s3:// URL of a file or a split folder; `*` in a file
    name matches any characters."""
    split_mode: Literal["ratio", "split_dir", "manifest"] = "ratio"
    """ratio divides one file (such as .json, .jsonl, .csv or .parquet); split_dir reads train|val|test/items.json, or
    another of these formats, and publish/items.json if it exists; manifest selects the ids in split_manifest."""
    split_manifest: ObjectName | None = None
    """Path or URL of a JSON document with the ids of each split, such as another run's data_manifest.json. Can also be
    a folder with lists of ids in train|val|test/items.json. For split_mode manifest."""
    split_ratio: Annotated[str, Field(pattern=RATIO), spelled(RATIO, RATIO_SPELLED)] = "2:1:7"
    """Parts of train, val and test in ratio mode; a fourth part is for publish."""
    split_seed: int = 42
    """Seed of the shuffle before a ratio split."""
    corpus: ObjectName | None = None
    """Path or URL of a folder of documents that all items share; every sandbox can read it. Files and folders whose
    names begin with a dot are left out."""
    limit: Positive | None = None
    """Number of items to use from the start of each split. Default: all."""
    task_type: ObjectName | None = None
    """Key of a record with the type of its task, or a list of types, for scores by type. Can be a path, such as
    metadata.subject."""

    @model_validator(mode="after")
    def _manifest(self) -> Self:
        if (self.split_mode == "manifest") != (self.split_manifest is not None):
            raise ValueError("split_mode manifest and split_manifest require each other. Set both or neither")
        return self

    @field_validator("split_ratio")
    @classmethod
    def _no_empty_part(cls, ratio: str) -> str:
        if not all(int(part) for part in ratio.split(":")):
            raise ValueError("every part of the ratio must be at least 1")
        return ratio


class SandboxGroup(Group):
    """The containers of rollouts."""

    engine: Literal["docker", "kubernetes"] = "docker"
    """Docker containers or pods of a Kubernetes cluster. Fixed at DAG parse time."""
    conn_id: ObjectName | None = None
    """Airflow connection of a remote engine (type docker), or of the cluster and the pods' namespace (type kubernetes).
    Default: the worker's own engine, or kubernetes_default."""
    image: ObjectName | None = None
    """Image that contains include/skillopt_airflow/rollout. Default: the project's image for the harness."""
    registry: ObjectName | None = None
    """Registry, or a path in one, of the project's images, such as registry.example.com/skillopt. The names of these
    images start with skillopt- and have no slash. Their tags are pulled again for each run. Default: the
    engine's own images."""
    items_per_container: Positive = 2000
    """Maximum items of a chunk, which share a container unless they execute the target's code, as a limit for the
    isolation of items. Chunks are smaller by default, see max_containers; a stage has at most 1,024 chunks."""
    max_containers: Positive = 4
    """Concurrent containers of a stage, to which its items are distributed evenly. Fixed at DAG parse time."""
    cpus: Annotated[float, Field(gt=0.0)] = 1.0
    """CPU limit per container."""
    memory: Annotated[str, Field(pattern=MEMORY), spelled(MEMORY, MEMORY_SPELLED)] = "512m"
    """Memory limit per container, including swap."""
    output_mb: Positive = 256
    """Output limit per container in megabytes."""
    timeout: Positive = 900
    """Timeout in seconds of a container in which no item ends. Fixed at DAG parse time."""
    code_timeout: Positive = 60
    """Timeout in seconds per execution of the target's code."""
    test_timeout: Positive = 900
    """Timeout in seconds of a repository's tests, which run in a separate container. Fixed at DAG parse time."""
    item_registry: str = ""
    """Registry, or a path in one, to prepend to the images that items name, such as registry.example.com/mirror.
    Default: none."""
    pool: ObjectName = "default_pool"
    """Airflow pool of the tasks that run containers or ask the optimizer. Fixed at DAG parse time."""
    queue: ObjectName | None = None
    """Queue of the tasks that need a Docker engine, for executors with queues. Default: the executor's. Fixed at DAG
    parse time."""

    @property
    def gateway_image(self) -> str:
        """Return the image of the model gateway and the courier, on a remote engine and in pods."""
        return self.registered("skillopt-gateway:latest")

    @property
    def has_own_image(self) -> bool:
        """True if the image is one of the project's images, see `registry`."""
        return self.image is None or _is_own(self.image)

    def registered(self, image: str) -> str:
        """Return the full name of an image; names of the project's images get the registry."""
        return f"{self.registry}/{image}" if _is_own(image) and self.registry is not None else image

    def renews(self, image: str) -> bool:
        """Return whether an image is pulled even if it is there, since its tag may mean another one by now."""
        return self.registry is not None and image.startswith(f"{self.registry}/") and "@" not in image


def _is_own(image: str) -> bool:
    return image.startswith("skillopt-") and "/" not in image


class StorageGroup(Group):
    """The object store."""

    conn_id: ObjectName = "skillopt_s3"
    """Airflow connection (type aws) of the object store."""
    bucket: ObjectName = "skillopt"
    """Bucket of runs, trajectories and usage."""
    artifact_bucket: ObjectName = "skillopt-artifacts"
    """Bucket of the published skills."""
    prefix: Annotated[str, Field(pattern=PREFIX), spelled(PREFIX, "write it as team-a/ or a/b/")] = ""
    """Key prefix in both buckets; empty, or with a slash at the end."""
