"""One run, as its tasks see it: opened from a small reference, everything else read from the object store."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import benchmarks
from include.core import schedule
from include.core.config import StorageGroup, TrainConfig
from include.core.ports import Benchmark
from include.core.scoring import Evaluation, evaluation_of
from include.core.skill import SkillDocument
from include.core.state import RunState
from include.core.types import Item, JsonObject, Split, Value, canonical_json, sha256

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from include.models.upstream import Upstream
    from include.rollout.settings import RolloutSettings
    from include.store.keys import StepKeys
    from include.store.objects import ObjectStore
    from include.store.trajectories import RolloutKey, RolloutTable, UsageTable

PROJECT = Path(__file__).parents[2]


class RunRef(Value):
    """All that travels between tasks: where the run lives, and the epoch inside an epoch's DAG."""

    benchmark: str
    run: str
    storage: StorageGroup
    epoch: int = 0
    offset: int = 0
    """Steps of the epoch that lie before the part of it that a DAG run goes through."""


class RunRecord(Value):
    """What `prepare` settled, as config.json: the resolved configuration and what it rests on."""

    benchmark: str
    run: str
    created: str
    """UTC, ISO 8601."""
    config: TrainConfig
    """Complete: the model names are those of the connections where the configuration left them open."""
    image: str
    """Digest of the sandbox image."""
    steps_in_epoch: int

    @property
    def total_steps(self) -> int:
        """T of the schedules."""
        return self.steps_in_epoch * self.config.train.num_epochs


class TrainingRun:
    """A run's settings, documents and tables."""

    def __init__(self, ref: RunRef, store: "ObjectStore") -> None:
        from include.store.keys import RunKeys

        self.ref = ref
        self.store = store
        self.keys: RunKeys = RunKeys(ref.storage.prefix, ref.benchmark, ref.run)

    @classmethod
    def open(cls, ref: JsonObject) -> "TrainingRun":
        """The run behind a reference, through the Airflow connection that it names."""
        parsed = RunRef.model_validate(ref)
        return cls(parsed, object_store(parsed.storage, parsed.storage.bucket))

    @cached_property
    def record(self) -> RunRecord:
        """What `prepare` settled."""
        return self.store.get_model(self.keys.config, RunRecord)

    @property
    def config(self) -> TrainConfig:
        """The resolved configuration."""
        return self.record.config

    @cached_property
    def benchmark(self) -> Benchmark:
        """The benchmark's adapter."""
        return benchmarks.load(self.ref.benchmark)

    @cached_property
    def rollouts(self) -> "RolloutTable":
        """All trajectories ever stored here."""
        from include.store.trajectories import RolloutTable

        return RolloutTable(self.store, self.ref.storage.prefix)

    @cached_property
    def usage(self) -> "UsageTable":
        """The model calls of all runs."""
        from include.store.trajectories import UsageTable

        return UsageTable(self.store, self.ref.storage.prefix)

    def items(self, split: Split) -> list[Item]:
        """The items of a split that this run uses, in their order."""
        from include.store.items import load_items

        limits = {Split.VAL: self.config.evaluation.val_limit, Split.TEST: self.config.evaluation.test_limit}
        return load_items(self.store, self.keys.items(split))[: limits.get(split)]

    def batch(self, position: int) -> list[Item]:
        """The items that step `position` (1-based) of this DAG run rolls out; none behind the epoch's end."""
        number = self.ref.offset + position
        if number > self.record.steps_in_epoch:
            return []
        return schedule.batch(self.items(Split.TRAIN), self.ref.epoch, number, self.config.train)

    def step_number(self, position: int) -> int:
        """The step's number over all epochs, 1-based."""
        return (self.ref.epoch - 1) * self.record.steps_in_epoch + self.ref.offset + position

    def step_keys(self, position: int) -> "StepKeys":
        """The keys of this DAG run's step `position`."""
        return self.keys.step(self.step_number(position))

    def state(self, step: int) -> RunState:
        """The state after a step, or after the seed was measured (0)."""
        return self.store.get_model(self.keys.step(step).state, RunState)

    def state_before(self, position: int) -> RunState:
        """The state that step `position` of this DAG run starts from."""
        state = self.state(self.step_number(position) - 1)
        return state.in_new_epoch() if self.ref.offset + position == 1 else state

    def skill(self, version: int) -> SkillDocument:
        """An accepted version of the skill; 0 is the seed."""
        return SkillDocument(self.store.get_text(self.keys.skill(version)))

    def candidate(self, position: int) -> SkillDocument:
        """The candidate of this DAG run's step `position`."""
        return SkillDocument(self.store.get_text(self.step_keys(position).candidate_skill))

    def settings(self, upstream: "Upstream") -> "RolloutSettings":
        """What a sandbox is told."""
        from include.rollout.settings import RolloutSettings

        model = self.config.model
        return RolloutSettings(
            benchmark=self.ref.benchmark,
            harness=model.harness,
            dialect=upstream.dialect,
            model=upstream.model,
            temperature=model.temperature,
            max_tokens=model.max_tokens,
            concurrency=model.concurrency,
            call_timeout=model.call_timeout,
            max_attempts=model.max_attempts,
        )

    def rollout_key(self, split: Split, skill: SkillDocument) -> "RolloutKey":
        """What makes two rollouts of an item the same; how fast or how often they are tried is not part of it."""
        from include.store.trajectories import RolloutKey

        model = self.config.model
        shaping = model.model_dump(mode="json", include={"temperature", "max_tokens"})
        return RolloutKey(
            benchmark=self.ref.benchmark,
            target=str(model.target),
            harness=model.harness,
            split=split,
            skill_sha256=skill.sha256,
            draw=0,
            settings_sha256=sha256(canonical_json(shaping)),
            image=self.record.image,
        )

    def evaluation(self, split: Split, skill: SkillDocument) -> Evaluation:
        """The skill's stored scores on the split, and this run's failures where there is no score."""
        items, key = self.items(split), self.rollout_key(split, skill)
        stored = self.rollouts.read(key, items)
        missing = [item for item in items if item.id not in stored]
        failed = self.rollouts.errors(key, self.ref.run, missing) if missing else {}
        return evaluation_of([item.id for item in items], [*stored.values(), *failed.values()])


def object_store(storage: StorageGroup, bucket: str) -> "ObjectStore":
    """A bucket behind the run's Airflow connection."""
    from include.store.objects import ObjectStore

    return ObjectStore(s3_client(storage), bucket)


def s3_client(storage: StorageGroup) -> "S3Client":
    """The client of the run's Airflow connection."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    hook: AwsGenericHook[S3Client] = AwsGenericHook(aws_conn_id=storage.conn_id, client_type="s3")
    return hook.get_conn()
