"""Trying a benchmark without a run: a few items under a skill, scored as a run scores them; nothing is stored."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from skillopt_airflow import benchmarks
from skillopt_airflow.core.budget import ModelPrice
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError, SkillOptError
from skillopt_airflow.core.protocols import Benchmark, JudgesFiles, JudgesRepository, PlaysSession
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.core.resource_groups import SandboxGroup, SearchGroup
from skillopt_airflow.core.skill import skill_of_person
from skillopt_airflow.core.types import Item, ModelCall, Rollout, Score, Split, Trajectory
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.training.answer_judge import in_doubt
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.data_items import read_splits
from skillopt_airflow.training.item_files import for_container
from skillopt_airflow.training.judging import Case, judge
from skillopt_airflow.training.repository_judging import engine_test_runner, judged_repository
from skillopt_airflow.training.run import needs_container_each, rollout_settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.gateway.upstream import Upstream
    from skillopt_airflow.rollout.settings import RolloutSettings
    from skillopt_airflow.sandbox.task_workload import Outcome
    from skillopt_airflow.store.corpora import SourceCorpus
    from skillopt_airflow.store.files import DataFiles


@dataclass(frozen=True)
class TargetModel:
    """The model that works on the items."""

    upstream: "Upstream"
    name: str
    """As the output names it."""
    price: ModelPrice | None
    is_stand_in: bool = False


@dataclass(frozen=True)
class Tried:
    """One item's rollout and its score, or why the benchmark's scorer has none."""

    item: Item
    trajectory: Trajectory
    score: Score | None
    unjudged: str = ""
    """The reason why a rollout that went well has no score; empty otherwise."""


class NoLimit:
    """The part of a budget that has no limits."""

    budget = RemainingBudget()

    def count(self, call: ModelCall) -> None:
        """Count nothing."""

    def complete(self) -> None:
        """Free nothing."""


@dataclass
class Trial:
    """The workload of a trial: its items, and the rows as they come in."""

    benchmark: str
    adapter: Benchmark
    config: TrainConfig
    skill: str
    items: Sequence[Item]
    upstream: "Upstream"
    data: "DataFiles"
    labels: Mapping[str, str]
    """Labels that only this trial's containers have."""
    on_row: Callable[[Tried], None]
    corpus: "SourceCorpus | None" = None
    """The documents that the sandbox can read, if the benchmark has a corpus."""
    calls: list[ModelCall] = field(default_factory=list)
    docker_url: str | None = None
    """Address of the engine of its containers; that of the environment when None."""

    stage = "try"
    released = None
    """All items at once."""
    search = None
    """Items are looked at with the documents that they bring."""

    @property
    def settings(self) -> "RolloutSettings":
        """Return what the rollout program is told."""
        offline = self.config.model_copy(update={"search": SearchGroup()})
        return rollout_settings(self.benchmark, offline, self.upstream.dialect, self.upstream.model, 0)

    @property
    def run_concurrency(self) -> int:
        """Return how many model calls the trial may have in flight."""
        return self.config.model.concurrency

    @property
    def image(self) -> str:
        """Return the name of the sandbox image."""
        return self.config.image

    @property
    def limits(self) -> SandboxGroup:
        """Return what a container may use."""
        return self.config.sandbox

    @property
    def one_item_each(self) -> bool:
        """Return whether what the model writes is executed, so that the items need containers."""
        return needs_container_each(self.adapter, self.config)

    @property
    def needs_image(self) -> bool:
        """Return whether containers are needed: for what is executed, and for a world, whose engine the image has."""
        return self.one_item_each or self.seals_files

    def files(self, item: Item) -> Mapping[str, bytes]:
        """Return the item's public files, from the data set, or what its world is made of."""
        return for_container(self.adapter, self.data.contents(item.files))

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        """Return what the item's own image is built from."""
        return {} if item.image is None else self.data.contents(item.image.files)

    @property
    def seals_files(self) -> bool:
        """Return whether the files are those of worlds."""
        return isinstance(self.adapter, PlaysSession)

    def settled(self) -> bool:
        """Return False: every item is wanted."""
        return False

    def allotted(self, gateways: int = 1) -> "AbstractContextManager[NoLimit]":
        """Return a budget without limits."""
        return nullcontext(NoLimit())

    def settle(self) -> None:
        """Free nothing."""

    def record(self, outcomes: "Sequence[Outcome]", calls: Sequence[ModelCall]) -> None:
        """Score what has arrived, and hand it on."""
        self.calls.extend(calls)
        by_id = {item.id: item for item in self.items}
        for outcome in outcomes:
            self.on_row(self._tried(by_id[outcome.trajectory.item_id], outcome))

    def _tried(self, item: Item, outcome: "Outcome") -> Tried:
        trajectory = outcome.trajectory
        if not trajectory.status.scored:
            return Tried(item, trajectory, None)
        if isinstance(self.adapter, JudgesRepository):
            return self._tested(self.adapter, item, outcome)
        try:
            score = self._score(item, outcome)
        except Exception as error:  # noqa: BLE001 - the benchmark's own code, which is what is being tried
            return Tried(item, trajectory, None, f"the scorer failed: {told(error)}")
        if in_doubt(self.adapter, self.config.evaluation, item, Rollout(trajectory=trajectory, score=score)):
            doubtful = f"{score.feedback}; here the rules decide, and a run asks the judge"
            score = score.model_copy(update={"feedback": doubtful})
        return Tried(item, trajectory, score)

    def _score(self, item: Item, outcome: "Outcome") -> Score:
        """Return a score; raise any error of the benchmark's own code, where a run would score 0."""
        if not isinstance(self.adapter, JudgesFiles):
            return self.adapter.score(item, outcome.trajectory)
        return judge(
            Case(benchmark=self.benchmark, item=item, trajectory=outcome.trajectory),
            outcome.files,
            self.data.contents(item.reference_files),
        )

    def _tested(self, benchmark: JudgesRepository, item: Item, outcome: "Outcome") -> Tried:
        tests = engine_test_runner(self.limits, self.image, self.labels, self.image_files, self.docker_url)
        found = judged_repository(benchmark, item, outcome.trajectory, outcome.files, tests)
        unjudged = found.trajectory.error if found.score is None else ""
        return Tried(item, found.trajectory, found.score, unjudged)


def first_items(
    benchmark: str, adapter: Benchmark, config: TrainConfig, split: Split, count: int, client: "S3Client"
) -> list[Item]:
    """Return the first items of a split.

    Raises:
        DataError: a file or a record is not usable; the text names it.
    """
    records = read_splits(benchmark, config, client)[0][split][:count]
    if not records:
        raise DataError(f"data.uri = {config.data.uri}: the {split} split has no records")
    items = []
    for row, record in enumerate(records, start=1):
        if isinstance(record, UnreadableRecord):
            raise DataError(record.reason)
        try:
            items.append(adapter.item(record))
        except Exception as error:  # noqa: BLE001 - the benchmark's own code, which is what is being tried
            _unusable(f"{split} row {row}", error)
    return items


def skill_of(benchmark: str, path: Path | None) -> str:
    """Return the text of a skill's file, of the seed skill without one.

    Raises:
        ConfigError: there is no such file, or it holds no text.
        SkillError: it has hidden characters or commands.
    """
    file = benchmarks.seed_skill(benchmark) if path is None else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{file}: the skill cannot be read ({reason}); name a Markdown file, or none to try the seed skill"
        ) from error
    return skill_of_person(text, str(file)).text


def told(error: Exception) -> str:
    """Return an error of a benchmark's own code: its type and text, and the line that raised it."""
    if isinstance(error, SkillOptError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"


def _unusable(row: str, error: Exception) -> NoReturn:
    raise DataError(f"{row}: {told(error)}") from error


def configured(benchmark: str, settings: Sequence[str]) -> TrainConfig:
    """Return the benchmark's configuration with knobs that are set as KEY=VALUE, the value in YAML.

    Raises:
        ConfigError: naming the file or the knob.
    """
    return TrainConfig.from_layers(benchmark_config(benchmark).model_dump(), nest(knobs(settings)))


def knobs(settings: Sequence[str]) -> dict[str, Any]:
    """Return knobs that a command sets as KEY=VALUE, by path."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(f"SET: {setting!r} should be a knob, =, and its value, such as model.max_turns=3")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"SET: {setting!r}: the value is not YAML ({error})") from error
    return found


def connected_target(config: TrainConfig) -> TargetModel:
    """Return the model behind the target's connection.

    Raises:
        ModelError: the connection leads to no usable model; the text names it.
    """
    # Airflow's SDK, which reads the connection, takes seconds to import.
    from skillopt_airflow.models import connection, server_check
    from skillopt_airflow.models.prices import price_of
    from skillopt_airflow.models.providers import check_sampling

    model = config.model
    upstream = connection.target_upstream(model.target_conn_id, model.target, model.harness)
    check_sampling(upstream, model)
    server_check.check(model.target_conn_id, model.target)
    server_check.check_harness(upstream, model.harness)
    name = connection.model_name(model.target_conn_id, model.target)
    price = price_of(name, config.budget.prices, connection.host(model.target_conn_id))
    return TargetModel(upstream, f"{name} of connection {model.target_conn_id}", price)
