"""The knobs of what a run uses: budget, models, data, containers, the object store and searches."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from skillopt_airflow.core.config.group import Group, ObjectName, Positive, spelled
from skillopt_airflow.core.config.harnesses import HarnessName
from skillopt_airflow.core.config.sampling import MAX_THOUGHTS, Effort

TRIES = 4
TRY_SECONDS = 20.0
MAX_PAUSE = 20.0
"""Seconds between two tries."""
SEARCH_PATIENCE = TRIES * (TRY_SECONDS + MAX_PAUSE)
"""Seconds after which no answer can come."""


class SearchGroup(Group):
    """The server of the target's searches."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) of a search server, such as skillopt_search; its extra has the kind: searxng,
    brave or tavily. When unset, searches look through the documents that an item brings with it, and nothing leaves
    the host."""


JUDGE_CONN_ID = "skillopt_judge"
"""Connection of the judge, if Airflow has it."""
RATIO = r"^\d+:\d+:\d+(:\d+)?$"
# YAML takes 2:1:7 without quotes for a number.
RATIO_SPELLED = "write three or four whole numbers, with colons and in quotes: '2:1:7'"
# Docker takes 0 for no limit.
MEMORY = r"^[1-9]\d*[kmg]$"
MEMORY_SPELLED = "write it as 512m or 4g"
PREFIX = r"^([^/]+/)*$"


class Price(Group):
    """A model's price in US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0.0)]
    """Tokens that the model reads."""
    output: Annotated[float, Field(ge=0.0)]
    """Tokens that the model writes."""


class BudgetGroup(Group):
    """Limits on model calls; a run that would pass one stops after the current step."""

    max_calls: Positive | None = None
    """Model calls of the run, target and optimizer together; no limit when unset."""
    max_tokens: Positive | None = None
    """Tokens read and written, target and optimizer together; no limit when unset."""
    max_usd: Annotated[float, Field(gt=0.0)] | None = None
    """US dollars; no limit when unset. Every model that the run asks needs a known price then."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by model, such as openai-chat:gpt-5; they win over the table of the genai-prices package."""

    @property
    def is_limited(self) -> bool:
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_usd))


class ModelGroup(Group):
    """The frozen target, the optimizer, and how they are reached."""

    target_conn_id: ObjectName = "skillopt_target"
    """Airflow connection (type pydanticai) of the model that executes items."""
    optimizer_conn_id: ObjectName = "skillopt_optimizer"
    """Airflow connection (type pydanticai) of the model that writes edits."""
    target: ObjectName | None = None
    """Target model such as openai-chat:gpt-5; the connection's own when unset."""
    optimizer: ObjectName | None = None
    """Optimizer model; the connection's own when unset."""
    judge: ObjectName | None = None
    """Model that judges answers, in a benchmark that asks one. It is behind the connection skillopt_judge, or the
    optimizer's if there is none. Default: the connection's own."""
    harness: HarnessName = "chat"
    """Program that runs an item: a conversation, an agent with the benchmark's tools, or one of two agent CLIs."""
    max_turns: Positive = 1
    """Most answers of the target to one item: of a conversation with the benchmark's feedback, or the model calls of
    harness tools, which needs at least 2. The agent CLIs set their own limits."""
    reasoning_effort: Effort | None = None
    """Reasoning effort of the target, such as low; or its most tokens of thinking; or on or off, for servers with such
    a switch (Qwen on vLLM). Default: the provider's."""
    optimizer_reasoning_effort: Effort | None = None
    """The same of the optimizer. Default: the provider's."""
    optimizer_temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the optimizer; the provider's default when unset."""
    optimizer_max_tokens: Positive | None = None
    """Most tokens of one answer of the optimizer, or the judge, its thinking included. Default: 1,000 to 32,000 by the
    purpose of the call, and its thinking. A higher value doesn't raise these."""
    batch: bool = False
    """Send evaluation and test items as one job of the provider's batch API: half the price, hours instead of
    minutes. For harness chat with one turn. Fixed when the DAG is parsed."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the target; the provider's default when unset."""
    max_tokens: Positive = 16_384
    """Most tokens of one answer of the target."""
    concurrency: Positive = 32
    """Model calls of the run's rollouts in flight; the containers that run at the same time have equal shares, of at
    least 1."""
    call_timeout: Annotated[float, Field(gt=0.0)] = 120.0
    """Seconds that one try of a model call may take. A call is tried five times, and one of the optimizer ends after
    five of these."""

    @property
    def optimizer_thoughts(self) -> int:
        """Return the most tokens that the optimizer thinks before an answer; 0 if it isn't set to think."""
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
                raise ValueError(f"{role}reasoning_effort = {effort} is a part of {role}max_tokens = {most}: lower it")
        return self

    @model_validator(mode="after")
    def _batchable(self) -> Self:
        if self.batch and (self.harness != "chat" or self.max_turns > 1):
            raise ValueError("batch sends single answers: it needs harness chat and max_turns 1")
        return self


class DataGroup(Group):
    """The source of the items and their split."""

    uri: ObjectName = "sample"
    """A local path (relative to the benchmark's folder), file:// or s3:// address of a file or a split folder; `*`
    in that of a file stands for any characters of a name."""
    split_mode: Literal["ratio", "split_dir", "manifest"] = "ratio"
    """ratio cuts one file (such as .json, .jsonl, .csv or .parquet); split_dir reads train|val|test/items.json, or
    another of these, and publish/items.json if it is there; manifest takes from either what split_manifest lists."""
    split_manifest: ObjectName | None = None
    """Address, like uri, of a JSON document that lists the ids of each split, such as another run's data_manifest.json,
    or of a folder with lists of ids in train|val|test/items.json; for split_mode manifest."""
    split_ratio: Annotated[str, Field(pattern=RATIO), spelled(RATIO, RATIO_SPELLED)] = "2:1:7"
    """Parts of train, val and test in ratio mode; a fourth is that of publish."""
    split_seed: int = 42
    """Seed of the shuffle before a ratio split."""
    corpus: ObjectName | None = None
    """Address, like uri, of a folder of documents that all items share; every sandbox can read it. Files and folders
    whose names begin with a dot are left out."""
    limit: Positive | None = None
    """Use only the first so many items of every split; all when unset."""
    task_type: ObjectName | None = None
    """Key of a record that holds the type of its task, or a list of types, by which scores are told, too;
    metadata.subject is the key of an object in the record."""

    @model_validator(mode="after")
    def _manifest(self) -> Self:
        if (self.split_mode == "manifest") != (self.split_manifest is not None):
            raise ValueError("split_mode manifest and split_manifest need each other: set both or neither")
        return self

    @field_validator("split_ratio")
    @classmethod
    def _no_empty_part(cls, ratio: str) -> str:
        if not all(int(part) for part in ratio.split(":")):
            raise ValueError("every part of the ratio must be at least 1")
        return ratio


class SandboxGroup(Group):
    """The containers that rollouts run in."""

    engine: Literal["docker", "kubernetes"] = "docker"
    """Docker containers or pods of a Kubernetes cluster; fixed when the DAG is parsed."""
    conn_id: ObjectName | None = None
    """Airflow connection of a remote engine (type docker), or of the cluster and the pods' namespace (type kubernetes).
    Default: the worker's own engine, or kubernetes_default."""
    image: ObjectName | None = None
    """Image that holds include/skillopt_airflow/rollout; the project's own for the harness when unset."""
    registry: ObjectName | None = None
    """Registry, or a part of one, that has the project's own images, such as registry.example.com/skillopt; these are
    all whose names begin with skillopt- and hold no slash. Their tags are pulled again for each run. Default: the
    engine's own images."""
    items_per_container: Positive = 2000
    """Most items of a chunk, which share a container unless they execute what the target writes: the limit for their
    isolation from each other. Chunks have fewer, see max_containers; a stage has at most 1,024 chunks."""
    max_containers: Positive = 4
    """Containers of a stage at the same time, between which its items are divided evenly; fixed when the DAG is
    parsed."""
    cpus: Annotated[float, Field(gt=0.0)] = 1.0
    """Processors that one container may use."""
    memory: Annotated[str, Field(pattern=MEMORY), spelled(MEMORY, MEMORY_SPELLED)] = "512m"
    """Memory that one container may use, swap included."""
    output_mb: Positive = 256
    """Megabytes that one container may write."""
    timeout: Positive = 900
    """Seconds that one container may run without an item ending; fixed when the DAG is parsed."""
    code_timeout: Positive = 60
    """Seconds that one execution of code which the target wrote may take."""
    test_timeout: Positive = 900
    """Seconds that the tests which judge a repository may take, in a container of their own; fixed when the DAG is
    parsed."""
    item_registry: str = ""
    """Registry, or a part of one, in front of the images that items name, such as registry.example.com/mirror; they are
    taken as they are named when empty."""
    pool: ObjectName = "default_pool"
    """Airflow pool of the tasks that run containers or ask the optimizer. Fixed when the DAG is parsed."""
    queue: ObjectName | None = None
    """Queue of the tasks that need a Docker engine, for executors whose workers listen to queues; the executor's
    default when unset. Fixed when the DAG is parsed."""

    @property
    def gateway_image(self) -> str:
        """Return the image of the model gateway and the courier, on a remote engine and in pods."""
        return self.registered("skillopt-gateway:latest")

    @property
    def has_own_image(self) -> bool:
        """Return whether the image is one of the project's own, which `registry` describes."""
        return self.image is None or _is_own(self.image)

    def registered(self, image: str) -> str:
        """Return the full name of an image, which is that in the registry for one of the project's own."""
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
    """Key prefix inside both buckets; empty, or ends with a slash."""
