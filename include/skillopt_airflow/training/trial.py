"""Try a benchmark without a run: run and score a few items as a run does, and store nothing."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import SearchGroup
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError, SkillOptError
from skillopt_airflow.core.run.budget import ModelPrice, total_spending
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.skill import skill_of_person
from skillopt_airflow.core.values.text import visible
from skillopt_airflow.core.values.types import Item, Message, ModelCall, Rollout, Score, Split, Trajectory
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.data.corpora import SourceCorpus
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.tasks.protocols import Benchmark, JudgesFiles, JudgesRepository
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.prepare.records_to_items import read_splits
from skillopt_airflow.training.rollouts.judging import Case, engine_test_runner, score_files, score_repository
from skillopt_airflow.training.rollouts.workload import BenchmarkWorkload
from skillopt_airflow.training.run.answer_cache import grading_request
from skillopt_airflow.training.run.run import rollout_settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class TargetModel:
    """The target model."""

    upstream: Upstream
    name: str
    """Its name in the output."""
    price: ModelPrice | None
    is_stand_in: bool = False


@dataclass(frozen=True)
class TriedItem:
    """An item's rollout with its score, or the reason why there is none."""

    item: Item
    trajectory: Trajectory
    score: Score | None
    unjudged: str = ""
    """Reason why a successful rollout has no score."""


class NoLimit:
    """A budget share without limits."""

    budget = RemainingBudget()

    def count(self, call: ModelCall) -> None:
        """Count nothing."""

    def complete(self) -> None:
        """Release nothing."""


@dataclass
class Trial(BenchmarkWorkload):
    """The workload of a trial."""

    benchmark: str
    adapter: Benchmark
    config: TrainConfig
    skill: str
    items: Sequence[Item]
    upstream: Upstream
    data: DataFiles
    labels: Mapping[str, str]
    """Labels of this trial's containers only."""
    on_row: Callable[[TriedItem], None]
    corpus: SourceCorpus | None = None
    """Documents that the sandbox can read, for benchmarks with a corpus."""
    calls: list[ModelCall] = field(default_factory=list)
    docker_url: str | None = None
    """URL of the Docker engine; the environment's if None."""

    stage = "try"
    released = None
    """All items start at once."""
    search = None
    """Searches use the items' own documents."""

    def __post_init__(self) -> None:
        super().__init__(self.adapter, self.config, self.data.contents)

    @property
    def settings(self) -> RolloutSettings:
        offline = self.config.model_copy(update={"search": SearchGroup()})
        return rollout_settings(self.benchmark, offline, self.upstream.dialect, self.upstream.model)

    @property
    def image(self) -> str:
        return self.config.image

    @property
    def needs_image(self) -> bool:
        """Return whether containers are needed: to execute code, or for a world's engine in the image."""
        return self.one_item_each or self.seals_files

    def is_decided(self) -> bool:
        return False

    def allotted(self, gateways: int = 1) -> "AbstractContextManager[NoLimit]":
        return nullcontext(NoLimit())

    def release_budget(self) -> None:
        """Release nothing."""

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        self.calls.extend(calls)
        by_id = {item.id: item for item in self.items}
        for outcome in outcomes:
            self.on_row(self._tried(by_id[outcome.trajectory.item_id], outcome))

    def _tried(self, item: Item, outcome: Outcome) -> TriedItem:
        trajectory = outcome.trajectory
        if not trajectory.status.scored:
            return TriedItem(item, trajectory, None)
        if isinstance(self.adapter, JudgesRepository):
            tests = engine_test_runner(self.limits, self.image, self.labels, self.image_files, self.docker_url)
            found = score_repository(self.adapter, item, trajectory, outcome.files, tests)
            return TriedItem(item, found.trajectory, found.score, found.trajectory.error if found.score is None else "")
        try:
            score = self._score(item, outcome)
        except Exception as error:  # noqa: BLE001 - the trial is about the benchmark's own code
            return TriedItem(item, trajectory, None, f"the scorer failed: {describe_error(error)}")
        if grading_request(self.adapter, self.config.evaluation, item, Rollout(trajectory=trajectory, score=score)):
            doubtful = f"{score.feedback}; scored by the rules, but a run asks the judge"
            score = score.model_copy(update={"feedback": doubtful})
        return TriedItem(item, trajectory, score)

    def _score(self, item: Item, outcome: Outcome) -> Score:
        """Return the score; raise errors of the benchmark's code, where a run would score 0."""
        if not isinstance(self.adapter, JudgesFiles):
            return self.adapter.score(item, outcome.trajectory)
        return score_files(
            Case(benchmark=self.benchmark, item=item, trajectory=outcome.trajectory),
            outcome.files,
            self.data.contents(item.reference_files),
        )


def first_items(
    benchmark: str, adapter: Benchmark, config: TrainConfig, split: Split, count: int, client: "S3Client"
) -> list[Item]:
    """Return the first items of a split; raise DataError, which names the file or record, if one is unusable."""
    records = read_splits(benchmark, config, client)[0][split][:count]
    if not records:
        raise DataError(f"data.uri = {config.data.uri}: the {split} split has no records")
    items = []
    for row, record in enumerate(records, start=1):
        if isinstance(record, UnreadableRecord):
            raise DataError(record.reason)
        try:
            items.append(adapter.item(record))
        except Exception as error:
            raise DataError(f"{split} row {row}: {describe_error(error)}") from error
    return items


def skill_text(benchmark: str, path: Path | None) -> str:
    """Return the text of a skill's file; of the seed skill if `path` is None.

    Raises:
        ConfigError: the file doesn't exist or isn't text.
        SkillError: it has hidden characters or commands.
    """
    file = benchmarks.seed_skill(benchmark) if path is None else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{file}: the skill cannot be read ({reason}). Name a Markdown file, or none to try the seed skill"
        ) from error
    return skill_of_person(text, str(file)).text


def describe_error(error: Exception) -> str:
    """Describe an error of a benchmark's code: type, text, and the line that raised it."""
    if isinstance(error, SkillOptError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"


def trial_config(benchmark: str, settings: Sequence[str]) -> TrainConfig:
    """Return the benchmark's configuration with knobs set as KEY=VALUE, where values are YAML; raise ConfigError."""
    return read_config(benchmark_config(benchmark).model_dump(), nest(knobs(settings)))


def knobs(settings: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE settings to knobs by path."""
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
    """Return the target connection's model; raise ModelError if it has no usable one."""
    # Airflow's SDK, which reads the connection, takes seconds to import.
    from skillopt_airflow.models import connection, server_check
    from skillopt_airflow.models.metering import price_of
    from skillopt_airflow.models.providers import check_sampling

    model = config.model
    upstream = connection.target_upstream(model.target_conn_id, model.target, model.harness)
    check_sampling(upstream, model)
    server_check.check(model.target_conn_id, model.target)
    server_check.check_harness(upstream, model.harness)
    name = connection.model_name(model.target_conn_id, model.target)
    price = price_of(name, config.budget.prices, connection.host(model.target_conn_id))
    return TargetModel(upstream, f"{name} of connection {model.target_conn_id}", price)


PLAIN_WIDTH = 100


class TrialDisplay:
    """Prints to the terminal, with colors and a spinner if it's interactive; thread-safe."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._spinner: Spinner | None = None
        self._rows: list[TriedItem] = []
        self._total = 0
        self._system = ""

    def begin(self, trial: Trial, split: Split, skill: Path, target: str) -> None:
        self._total = len(trial.items)
        self._line(f"{trial.benchmark}: {_counted(self._total, 'item')} of {split} from {trial.config.data.uri}")
        self._line(f"Skill      {skill}")
        self._line(f"Target     {target}")
        where = "a separate process, no sandbox"
        if trial.needs_image:
            where = "a sandbox container for each item" if trial.one_item_each else "a sandbox container"
        self._line(f"Harness    {trial.config.model.harness}, in {where}")

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show the number of finished items while the block runs."""
        with self._console.status(f"0 of {self._total} items") as spinner:
            self._spinner = spinner
            yield
        self._spinner = None

    def note(self, text: str) -> None:
        self._line(text, "dim")

    def show(self, row: TriedItem) -> None:
        self._rows.append(row)
        trajectory = row.trajectory
        self._console.rule(Text(visible(f"{len(self._rows)} of {self._total}: {row.item.id}")), align="left")
        for message in trajectory.messages:
            self._message(message)
        if row.score is None:
            self._field("failed", row.unjudged or f"{trajectory.status}: {trajectory.error}", "red")
            if row.unjudged:
                self._field("answer", trajectory.answer)
        else:
            self._field("answer", trajectory.answer)
            style = "green" if row.score.hard == 1 else "yellow"
            self._field("score", f"hard {row.score.hard:g}, soft {row.score.soft:.2f}", style)
            self._field("feedback", row.score.feedback)
        if trajectory.files:
            self._field("files", ", ".join(trajectory.files))
        tokens = f"{trajectory.prompt_tokens} + {trajectory.completion_tokens} tokens"
        self._field("cost", f"{_counted(trajectory.calls, 'call')}, {tokens}, {trajectory.seconds:.1f} s")
        if self._spinner is not None:
            self._spinner.update(f"{len(self._rows)} of {self._total} items")

    def end(self, trial: Trial, price: ModelPrice | None, *, is_free: bool) -> None:
        self._console.rule(align="left")
        scores = [row.score for row in self._rows if row.score is not None]
        if scores:
            hard, soft = (sum(values) / len(scores) for values in zip(*((s.hard, s.soft) for s in scores), strict=True))
            self._line(f"Scores     {len(scores)} of {self._total} items: hard {hard:.3f}, soft {soft:.3f} on average")
        total = total_spending(trial.calls, {"target": price})
        dollars = "free" if is_free else "price unknown" if total.usd is None else f"${total.usd:.4f}"
        self._line(f"Cost       {_counted(total.calls, 'call')}, {total.tokens} tokens, {dollars}")
        if not self.all_scored():
            self._failures()

    def all_scored(self) -> bool:
        return sum(row.score is not None for row in self._rows) == self._total

    def _failures(self) -> None:
        failed = [row for row in self._rows if row.score is None]
        self._line(f"No score   {len(failed)} of {self._total} items:", "red")
        for row in failed:
            self._line(f"  {row.item.id}: {row.unjudged or f'{row.trajectory.status}: {row.trajectory.error}'}", "red")
        reason = FailureReason.of((row.trajectory for row in failed), self._total)
        if reason is not None and reason.count > 1:
            self._line(f"Most often {reason}", "red")

    def _message(self, message: Message) -> None:
        text = message.content
        if message.role == "system":
            # The skill is long, and the same for every item.
            text, self._system = ("(unchanged)" if text == self._system else text), text
        self._field(message.role, text, "dim" if message.role == "system" else "")

    def _field(self, name: str, text: str, style: str = "") -> None:
        shown = visible(text)
        label = Text(name if "\n" in shown else f"{name:10}", style="bold")
        between = "\n" if "\n" in shown else " "
        self._console.print(Text.assemble(label, between, (shown, style)), soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style=style), soft_wrap=True)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
