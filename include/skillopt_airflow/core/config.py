"""Every knob of a training and its default; nothing else in the project holds one.

Layers, later ones win: the defaults here (the paper's protocol), `benchmarks/<name>/benchmark.yaml`,
a run's overrides.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from skillopt_airflow.core.config_group import Group
from skillopt_airflow.core.config_layers import explain, merge_layers
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.sampling import Effort, ImageDetail
from skillopt_airflow.core.task_group import RULE_KEYS, TaskGroup
from skillopt_airflow.core.types import Split

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
ObjectName = Annotated[str, Field(min_length=1)]


class TrainGroup(Group):
    """The outer loop (paper section 4, protocol)."""

    num_epochs: Positive = 4
    """Passes over the training split. The graph has as many as the benchmark's file says; a run may ask for fewer."""
    steps_per_epoch: Positive | None = None
    """Most steps of an epoch, each a batch; as many as cover the training split when unset."""
    init_skill: Annotated[str, Field(min_length=1)] = "seed"
    """The skill to begin with: `seed`, `champion`, a version, an s3:// address, or a text. A training that a decline
    starts begins with the champion instead of the seed."""
    batch_size: Positive = 40
    """Items of the training split in one slice."""
    accumulation: Positive = 1
    """Slices that one step rolls out and reflects on before it merges what they propose."""
    rollouts_per_item: Positive = 1
    """Tries of each item of a batch, which an analyst sees side by side. For a target that samples: one that always
    answers alike gives equal ones."""
    proposals: Positive = 1
    """Candidates that a step makes side by side of one batch, each from other minibatches; all are measured at the same
    time, and the gate decides on the best. Not with evaluation.screen."""
    seed: int = 42
    """Seed of every shuffle of the training."""
    preflight: bool = True
    """Try target, optimizer and both buckets once, in seconds, before the first batch that is paid for."""
    speculative_rollout: bool | Literal["auto"] = "auto"
    """Roll out the next batch with the present skill while a candidate is evaluated; wasted if it is accepted. auto
    does so where three of the last four steps rejected theirs and the budget has room for the rest of the run."""

    @property
    def batch_draws(self) -> range:
        """Return the draws of a batch's items."""
        return range(self.rollouts_per_item)


class GradientGroup(Group):
    """Reflection and merging (paper section 3.3)."""

    minibatch_size: Positive = 8
    """Items whose trajectories one reflection call sees, all tries of each."""
    merge_batch_size: Annotated[int, Field(ge=2)] = 8
    """Patches that one merge call sees; one alone would never become fewer."""
    analyst_workers: Positive = 16
    """Optimizer calls of one run at the same time."""
    analyst_rounds: Annotated[int, Field(ge=1, le=3)] = 1
    """Times that an analyst answers: after the first, its draft is held against the same minibatch and corrected."""
    failure_only: bool = False
    """Reflect on failures alone."""
    use_deep_reflect: bool = False
    """Before reflection the optimizer asks the target about a few of its trajectories."""
    deep_reflect_failures: Count = 4
    """Failures of a step that the target is asked about."""
    deep_reflect_successes: Count = 2
    """Successes of a step that the target is asked about."""


class OptimizerGroup(Group):
    """Changes to the skill from proposals (paper section 3.4), and the slower mechanisms of an epoch's end (3.6)."""

    learning_rate: Positive = 4
    """Most edits that a step applies at the schedule's start."""
    min_learning_rate: Positive = 2
    """Most edits that a step applies at the schedule's end."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "cosine"
    """Curve on which the learning rate falls from its maximum to its minimum."""
    lr_control_mode: Literal["fixed", "autonomous", "none"] = "fixed"
    """fixed follows the schedule, autonomous lets the optimizer choose up to learning_rate, none applies every edit."""
    skill_update_mode: Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"] = "patch"
    """patch applies the edits; the others have the optimizer write the skill's body anew."""
    merge_rewrites: bool = False
    """In mode full_rewrite_minibatch the optimizer merges the bodies, as it does patches, instead of choosing one."""
    use_slow_update: bool = True
    """From epoch 2 on write guidance into a protected region, from comparing two epochs' last skills."""
    slow_update_samples: Positive = 20
    """Training items that both skills of the comparison run on."""
    slow_update_gate: bool = True
    """The guidance passes the gate like a step's edits; false measures it and takes it in any case."""
    longitudinal_pair_policy: Literal["mixed", "changed", "unchanged"] = "mixed"
    """Items of the comparison that the optimizer sees: all, those whose outcome changed, or the others. Where these are
    fewer than were sampled, other training items fill them up."""
    longitudinal_fill: Positive = 3
    """For changed and unchanged: most training items that run under both skills to find one of slow_update_samples that
    the policy keeps; none beyond the samples while stored rollouts hold enough."""
    use_meta_skill: bool = True
    """Keep a memory of the same comparison for later optimizer calls; it never enters the skill."""
    use_meta_reflect: bool = False
    """At an epoch's end propose edits from what the epoch accepted and rejected."""
    use_skill_aware_reflection: bool = False
    """Tell defects of the skill from lapses of its execution; lapses become notes in a protected appendix."""
    skill_aware_appendix_source: Literal["failure", "success", "both"] = "both"
    """Minibatches that may add notes."""
    skill_aware_notes_gate: bool = False
    """The notes pass the gate with the step's edits; false adds them to the skill whatever the gate says, and the next
    candidate measures them."""
    skill_aware_consolidate_threshold: Count = 0
    """Notes above which the optimizer rewrites the appendix shorter; 0 never does."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError("min_learning_rate must not exceed learning_rate")
        return self

    @model_validator(mode="after")
    def _compatible(self) -> Self:
        if self.use_skill_aware_reflection and self.skill_update_mode == "full_rewrite_minibatch":
            raise ValueError(
                "use_skill_aware_reflection takes notes beside edits, and full_rewrite_minibatch makes no edits: "
                "set skill_update_mode to patch or rewrite_from_suggestions, or use_skill_aware_reflection to false"
            )
        return self


class EvaluationGroup(Group):
    """The validation gate (paper section 3.5) and the test at the end."""

    use_gate: bool = True
    """False accepts every candidate that differs; it is measured and recorded all the same."""
    gate_policy: Literal["paper", "no_regression", "paired_se", "mcnemar", "confirm", "e_process"] = "paper"
    """The rule for accepting a candidate; each policy also asks for a strictly better mean."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Share of candidates that change nothing which mcnemar, confirm and e_process may accept."""
    gate_se_factor: Annotated[float, Field(gt=0.0)] = 2.0
    """Standard errors by which paired_se wants the mean difference to exceed 0."""
    gate_protected_items: tuple[str, ...] = ()
    """Items of the selection split, by id, on which no_regression allows no loss."""
    early_reject: bool = True
    """Stop an evaluation when what is certain rules a win out: what could not be accepted takes fewer rollouts. Without
    effect where nothing is gated, and on batch jobs."""
    screen: Literal["none", "batch"] = "none"
    """batch runs a step's candidate on the step's own batch first: what is worse there than the current skill is
    rejected without the selection split. Without effect where nothing is gated."""
    draws: Positive = 1
    """Rollouts of each item of an evaluation; its score is their mean, and it has none if one of them failed."""
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    """Score that the gate compares; mixed is (1 - w) hard + w soft."""
    gate_mixed_weight: Fraction = 0.5
    """The weight w of the soft score when gate_metric is mixed."""
    use_semantic_density: bool = False
    """Choose the best skill by score and semantic density together; what is accepted is for the gate alone."""
    semantic_density_weight: Annotated[float, Field(ge=0.0)] = 0.05
    """Most that density adds to a score: half of it for a score of 1 with 1,000 tokens, less for a longer skill."""
    leading_words: tuple[ObjectName, ...] = ()
    """Words, such as MUST and NEVER, whose share in a skill's words is its density instead; its length when unset."""
    min_coverage: Fraction = 0.95
    """Share of items that must have a score, else an evaluation decides nothing."""
    val_limit: Positive | None = None
    """Evaluate on the first so many items of the selection split, which must have them; all when unset."""
    test_limit: Positive | None = None
    """Test on the first so many items of the test split, which must have them; all when unset."""
    eval_test: bool = True
    """Measure the seed, the best and the last skill on the test split; equal texts once."""

    @property
    def screens(self) -> bool:
        """Return whether the candidates of steps are screened."""
        return self.screen == "batch" and self.use_gate

    def limit(self, split: Split) -> int | None:
        """Return how many items of a split are used; None for all of them."""
        return {Split.VAL: self.val_limit, Split.TEST: self.test_limit}.get(split)


class PublishingGroup(Group):
    """The requirements for becoming the champion, measured after training on items by which nothing was selected."""

    split: Literal["test", "publish"] = "test"
    """Items on which candidate and champion are compared: the test split, or a split publish of their own."""

    gate_policy: Literal["paper", "mcnemar", "e_process"] = "mcnemar"
    """Test by which the candidate must beat the champion, or the seed skill before there is one; paper is no test."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Share of candidates that change nothing which mcnemar and e_process may publish, over all looks at the same items
    together."""
    draws: Annotated[int, Field(ge=1, le=100)] = 1
    """Rollouts of every item of that split, by each of the two skills; stored ones are reused."""
    approval: bool = False
    """Ask a person for approval in Airflow's UI."""
    approval_hours: Annotated[float, Field(gt=0.0)] = 24.0
    """Hours after which what nobody approved is rejected; fixed when the DAG is parsed."""


class RegateGroup(Group):
    """The nightly check of the champion on fresh items."""

    schedule: ObjectName = "@daily"
    """End of a night, as a cron expression or preset; fixed when the DAG is parsed."""
    fresh_uri: ObjectName | None = None
    """Folder of date=YYYY-MM-DD/items.json, in the ways and formats of data.uri; when unset, `fresh` below data.uri, or
    beside it where that is one file."""
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Chance a month, of 30 nights, of demoting a champion that is as good as the one before it."""
    on_demote: Literal["report", "ask", "rollback"] = "ask"
    """Consequence of a demotion: nothing but the report, a question in Airflow's UI, or the rollback at once."""
    on_stale: Literal["report", "train"] = "report"
    """Consequence of a champion that is worse than the seed skill: the report and its event, or a training; fixed when
    the DAG is parsed."""
    train_on_decline: bool = False
    """Start a training after any decline: a champion that is demoted, stale, or below its published score; fixed when
    the DAG is parsed."""


class RetentionGroup(Group):
    """The cleanup of data that trainings and nights leave."""

    schedule: ObjectName = "@weekly"
    """Time of the cleanup, as a cron expression or preset; fixed when the DAG is parsed. One DAG cleans up after all
    benchmarks, at the times of each."""
    trajectory_days: Positive | None = None
    """Days for which trajectories are kept, which are the cache of finished rollouts, too; for ever when unset.
    No run can change it for the cleanup."""


class AlertsGroup(Group):
    """Alerts about a run that fails or a night that is late."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) that gets a POST with JSON; nobody is told when unset. Fixed when the DAG is
    parsed."""
    late_hours: Annotated[float, Field(gt=0.0)] = 6.0
    """Hours after a night's end at which one that is not settled is late; fixed when the DAG is parsed."""


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
    """US dollars; no limit when unset. Every model needs a known price then."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by model, such as openai-chat:gpt-5; they win over the table of the genai-prices package."""


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
    harness: HarnessName = "chat"
    """Program that runs an item: a conversation, an agent with the benchmark's tools, or one of two agent CLIs."""
    max_turns: Positive = 1
    """Most answers of the target to one item: of a conversation with the benchmark's feedback, or the model calls of
    harness tools, which needs at least 2. The agent CLIs set their own limits."""
    reasoning_effort: Effort | None = None
    """Reasoning effort of the target; the provider's default when unset."""
    optimizer_reasoning_effort: Effort | None = None
    """Reasoning effort of the optimizer; the provider's default when unset."""
    optimizer_temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of the optimizer; the provider's default when unset."""
    optimizer_max_tokens: Positive | None = None
    """Most tokens of one answer of the optimizer, its thinking included; the provider's default when unset."""
    optimizer_thinking: Literal["on", "off"] | None = None
    """Switches the thinking of the optimizer; the provider's default when unset."""
    image_detail: ImageDetail | None = None
    """How closely the target looks at pictures, for OpenAI's models; the provider's default when unset."""
    optimizer_thinking_budget: Positive | None = None
    """Most tokens that the optimizer thinks before an answer, where the provider has a limit for it; its own when
    unset."""
    thinking_budget: Positive | None = None
    """Most tokens that the target thinks before an answer, where the provider has a limit for it; its own when
    unset."""
    thinking: Literal["on", "off"] | None = None
    """Switches the thinking of the target on servers with a chat template for it (Qwen on vLLM); theirs when unset."""
    seed: int | None = None
    """Sampling seed of the target, counted up by the draw; none is sent when unset."""
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
    """Seconds that one model call may take."""
    max_attempts: Positive = 5
    """Tries of one model call that ends in 429, 5xx or a time-out."""

    @model_validator(mode="after")
    def _budget_of_thinking(self) -> Self:
        for role, thinking, budget, most in (
            ("", self.thinking, self.thinking_budget, self.max_tokens),
            ("optimizer_", self.optimizer_thinking, self.optimizer_thinking_budget, self.optimizer_max_tokens),
        ):
            if budget is not None and thinking == "off":
                raise ValueError(f"{role}thinking_budget limits what {role}thinking = off forbids: unset one of them")
            if budget is not None and most is not None and budget >= most:
                raise ValueError(
                    f"{role}thinking_budget is a part of {role}max_tokens = {most}, and has to be below it"
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
    """A local path (relative to the benchmark's folder), file:// or s3:// address of a file or a split folder."""
    split_mode: Literal["ratio", "split_dir", "manifest"] = "ratio"
    """ratio cuts one file (.json, .jsonl, .csv or .parquet); split_dir reads train|val|test/items.json, or another of
    these, and publish/items.json if it is there; manifest takes from either what split_manifest lists."""
    split_manifest: ObjectName | None = None
    """Address, like uri, of a JSON document that lists the ids of each split, such as another run's data_manifest.json;
    for split_mode manifest."""
    split_ratio: Annotated[str, Field(pattern=r"^\d+:\d+:\d+(:\d+)?$")] = "2:1:7"
    """Parts of train, val and test in ratio mode; a fourth is that of publish."""
    split_seed: int = 42
    """Seed of the shuffle before a ratio split."""
    limit: Positive | None = None
    """Use only the first so many items of every split; all when unset."""
    task_type: ObjectName | None = None
    """Key of a record that holds the type of its task, or a list of types, by which scores are told, too."""

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
    docker_conn_id: ObjectName | None = None
    """Airflow connection (type docker) of a remote engine; the worker's own engine when unset."""
    kubernetes_conn_id: ObjectName = "kubernetes_default"
    """Airflow connection (type kubernetes) of the cluster."""
    namespace: ObjectName = "default"
    """Kubernetes namespace of the pods."""
    gateway_image: ObjectName = "skillopt-gateway:latest"
    """Image of the model gateway where it cannot run inside the task: beside a remote engine's containers, in a pod."""
    image: ObjectName | None = None
    """Image that holds include/skillopt_airflow/rollout; the project's own for the harness when unset."""
    pull: Literal["missing", "always", "never"] = "missing"
    """Pull the image from its registry if it is missing, always or never."""
    items_per_container: Positive = 2000
    """Most items of a chunk, which share a container unless they execute what the target writes: the limit for their
    isolation from each other. Chunks have fewer, see max_containers."""
    max_containers: Positive = 4
    """Containers of a stage at the same time, between which its items are divided evenly; fixed when the DAG is
    parsed."""
    cpus: Annotated[float, Field(gt=0.0)] = 1.0
    """Processors that one container may use."""
    memory: Annotated[str, Field(pattern=r"^\d+[kmg]$")] = "512m"
    """Memory that one container may use, swap included."""
    pids: Positive = 128
    """Processes and threads that one container may have."""
    output_mb: Positive = 256
    """Megabytes that one container may write."""
    log_kb: Positive = 64
    """Kilobytes of a container's output that reach the task log; the rest is left out."""
    timeout: Positive = 900
    """Seconds that one container may run without an item ending; fixed when the DAG is parsed."""
    code_timeout: Positive = 60
    """Seconds that one execution of code which the target wrote may take."""
    pool: ObjectName = "default_pool"
    """Airflow pool of the tasks that run containers; fixed when the DAG is parsed."""


class StorageGroup(Group):
    """The object store."""

    conn_id: ObjectName = "skillopt_s3"
    """Airflow connection (type aws) of the object store."""
    bucket: ObjectName = "skillopt"
    """Bucket of runs, trajectories and usage."""
    artifact_bucket: ObjectName = "skillopt-artifacts"
    """Bucket of the published skills."""
    prefix: Annotated[str, Field(pattern=r"^([^/]+/)*$")] = ""
    """Key prefix inside both buckets; empty, or ends with a slash."""


class TrainConfig(Group):
    """The whole configuration of one run."""

    train: TrainGroup = TrainGroup()
    gradient: GradientGroup = GradientGroup()
    optimizer: OptimizerGroup = OptimizerGroup()
    evaluation: EvaluationGroup = EvaluationGroup()
    model: ModelGroup = ModelGroup()
    data: DataGroup = DataGroup()
    sandbox: SandboxGroup = SandboxGroup()
    storage: StorageGroup = StorageGroup()
    budget: BudgetGroup = BudgetGroup()
    publishing: PublishingGroup = PublishingGroup()
    regate: RegateGroup = RegateGroup()
    retention: RetentionGroup = RetentionGroup()
    alerts: AlertsGroup = AlertsGroup()
    task: TaskGroup | None = None
    """The task by its data alone; None where the benchmark's adapter.py defines it."""

    @model_validator(mode="after")
    def _one_proposal_to_screen(self) -> Self:
        if self.train.proposals > 1 and self.evaluation.screen != "none":
            raise ValueError(
                f"evaluation.screen = {self.evaluation.screen} looks at one candidate of a step, and train.proposals = "
                f"{self.train.proposals} makes several: set one to none, or the other to 1"
            )
        return self

    @property
    def image(self) -> str:
        """Name of the image that rollouts run in."""
        return HARNESSES[self.model.harness].image if self.sandbox.image is None else self.sandbox.image

    @classmethod
    def from_layers(cls, *layers: Mapping[str, Any]) -> "TrainConfig":
        """Merge nested layers, later ones win, and validate.

        Raises:
            ConfigError: naming each offending key with its path and what is allowed there.
        """
        try:
            return cls.model_validate(merge_layers(layers, cls.model_fields))
        except ValidationError as error:
            raise ConfigError(explain(error, [*fields_by_path(), *RULE_KEYS])) from None


def nest(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `{"optimizer.learning_rate": 2}` into `{"optimizer": {"learning_rate": 2}}`."""
    layers = (
        reduce(lambda inner, key: {key: inner}, reversed(path.split(".")), value) for path, value in overrides.items()
    )
    return merge_layers(layers, TrainConfig.model_fields)


def fields_by_path() -> dict[str, FieldInfo]:
    """Return every knob by its dotted path, in the order of the groups."""
    paths: dict[str, FieldInfo] = {}
    for group, field in TrainConfig.model_fields.items():
        for group_type in get_args(field.annotation) or (field.annotation,):
            if isinstance(group_type, type) and issubclass(group_type, Group):
                paths |= {f"{group}.{key}": knob for key, knob in group_type.model_fields.items()}
    return paths


def changed_paths(config: TrainConfig, other: TrainConfig) -> list[str]:
    """Return the paths of the knobs whose values differ, in the order of the groups."""
    one, two = (_values_by_path(each.model_dump(mode="json")) for each in (config, other))
    return [path for path in one if one[path] != two[path]]


def _values_by_path(dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs' values; those of a group that is None are None."""
    split = ((path, *path.split(".")) for path in fields_by_path())
    return {path: None if dumped[group] is None else dumped[group].get(key) for path, group, key in split}
