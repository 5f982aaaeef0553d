"""Trainings of examples/ledger in this process, with models and S3 server from Airflow's connections."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import tables
from bench.real_place import EXAMPLE
from bench.training_loop import TrainingLoop
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.gate.measured_score import MeasuredScore
from skillopt_airflow.core.gate.paired import PairedTable, paired
from skillopt_airflow.core.run.budget import MODEL_ROLES, Role
from skillopt_airflow.core.run.history import History
from skillopt_airflow.core.run.skill_matrix import MatrixRequest
from skillopt_airflow.core.values.types import JsonObject, Split
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.sandbox.container_loop import run_workload
from skillopt_airflow.sandbox.rollout_process import ProcessRuntime
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, preset_of
from skillopt_airflow.training.report.matrix import prepare_matrix
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.training.trial import knobs

BENCHMARK, PRESET = EXAMPLE.name, "cpu"
HEADER = (
    "skill",
    "right records",
    "test score [95%]",
    "difference from the seed skill [95%]",
    "validation score",
    "minutes",
    "target calls",
    "optimizer calls",
    "tokens read",
    "tokens written",
)
STEPS = ("step", "verdict", "validation score before", "candidate", "edits applied", "answers that weren't usable")

log = logging.getLogger("skillopt_airflow.bench")


class Floor(NamedTuple):
    """Scores of the seed skill and the hand-written skill on the test split."""

    seed: MeasuredScore
    written: MeasuredScore
    gain: PairedTable


class OnThisMachine(AirflowConnections):
    """Rollouts are local processes, so they need no engine and no image."""

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        """Only check the models."""
        self._check_models(config.model, asked)
        return "no image"


class LoggedLoop(TrainingLoop):
    """A training that logs the name of each task."""

    def task(self, name: str, work: Callable[[], Any]) -> Any:
        log.info("--- %s", name)
        return work()


@dataclass(frozen=True)
class TrainingResult:
    """A training's result."""

    seed: int
    history: History
    gain: PairedTable
    """Best skill compared with the seed skill on the test split."""
    diff: str
    minutes: float


def measure(model: str, description: str, seeds: int, settings: Sequence[str] = ()) -> None:
    """Score the hand-written skill, train once per seed, and write the table.

    Args:
        model: the model's name for knobs.
        description: the model's name for the table.
        seeds: number of trainings.
        settings: knobs that override the preset, as KEY=VALUE.
    """
    floor = hand_written(configured(model, 0, settings))
    changed = f" (changed: {', '.join(settings)})" if settings else ""
    note = (
        f"{description} is target and optimizer, with the preset `{PRESET}`{changed} of "
        f"[{BENCHMARK}](../../examples/{BENCHMARK}/README.md). Scores are on "
        f"{floor.gain.pairs} held-out test items: the mean of the share of right records and of how alike the records "
        "are. The trainings reuse the seed skill's test rollouts. A person wrote "
        "the hand-written skill: it shows what the target can do with good instructions."
    )
    trainings: list[TrainingResult] = []
    for seed in range(seeds + 1):
        # Write the table after each training, because trainings can take hours.
        trainings += [trained(configured(model, seed, settings))] if seed else []
        table = tables.Section("Scores", note, HEADER, [*_floor_rows(floor), *map(_row, trainings)])
        sections = [table, *map(_section, trainings)]
        tables.write_sections("real_model", "Training with a real model", "", sections, "make real MODEL=...")


def configured(model: str, seed: int, settings: Sequence[str] = ()) -> TrainConfig:
    own = {"train.seed": seed, "model.target": model, "model.optimizer": model}
    preset = preset_of(BENCHMARK, PRESET).settings
    return read_config(benchmark_config(BENCHMARK).model_dump(), preset, nest(knobs(settings) | own))


def hand_written(config: TrainConfig) -> Floor:
    """Compare the hand-written skill with the seed skill on the test split."""
    run, rules, model = open_run("hand-written"), config.evaluation, config.model
    text = (EXAMPLE / "hand_written.md").read_text(encoding="utf-8")
    request = MatrixRequest(
        skills=("seed", text), targets=(str(model.target),), harnesses=(model.harness,), splits=(Split.TEST,)
    )
    plan = prepare_matrix(run, config, request, lambda target, harness: config)
    roll_out(run, plan.chunks[0])
    seed, written = (measured(run, Split.TEST, run.skill(version)) for version in (0, 1))
    return Floor(MeasuredScore.of(seed, rules), MeasuredScore.of(written, rules), paired(written, seed, rules))


def trained(config: TrainConfig) -> TrainingResult:
    run, clock = open_run(f"seed-{config.train.seed}"), time.monotonic()
    state = LoggedLoop(run, config, partial(roll_out, run))()
    seed, best = run.skill(0), run.skill(state.best.version)
    before, after = (measured(run, Split.TEST, skill) for skill in (seed, best))
    return TrainingResult(
        seed=config.train.seed,
        history=run.store.get_model(run.keys.history, History),
        gain=paired(after, before, config.evaluation),
        diff="\n".join(
            unified_diff(seed.text.splitlines(), best.text.splitlines(), "seed skill", "best skill", lineterm="")
        ),
        minutes=(time.monotonic() - clock) / 60,
    )


def roll_out(run: TrainingRun, refs: Sequence[JsonObject]) -> None:
    """Run chunks, each in a rollout process with the real gateway."""
    for ref in refs:
        work = ChunkWorkload(run, ref, "real")
        run_workload(work, partial(_process, work), threading.Event())


def open_run(name: str) -> TrainingRun:
    return TrainingRun(RunRef(benchmark=BENCHMARK, run=name, storage=StorageGroup()), OnThisMachine())


def _process(work: ChunkWorkload, folder: Path) -> AbstractContextManager[ProcessRuntime]:
    return nullcontext(ProcessRuntime(work, folder))


def _floor_rows(floor: Floor) -> list[tables.Cells]:
    unknown = [""] * (len(HEADER) - 4)
    return [
        ("seed skill", *_score(floor.seed), *unknown, ""),
        ("hand-written skill", *_score(floor.written), _difference(floor.gain), *unknown),
    ]


def _row(one: TrainingResult) -> tables.Cells:
    history = one.history
    return (
        f"best skill, seed {one.seed}",
        # A training that stopped early has no test scores.
        *(_score(history.test["best"]) if "best" in history.test else ("stopped", "")),
        _difference(one.gain),
        f"{history.seed.score:.3f} to {history.best.score:.3f}",
        f"{one.minutes:.1f}",
        history.calls("target"),
        history.calls("optimizer"),
        f"{sum(cost.prompt_tokens for cost in history.costs):,}",
        f"{sum(cost.completion_tokens for cost in history.costs):,}",
    )


def _section(one: TrainingResult) -> tables.Section:
    rows = [
        (
            moment.step,
            moment.action,
            f"{table.other_score:.3f}" if table.pairs else "",
            f"{table.score:.3f}" if table.pairs else "",
            moment.edits_applied,
            "<br>".join(moment.fallbacks).replace("|", r"\|"),
        )
        for moment in one.history.moments
        for table in [moment.decision.against_current]
    ]
    changed = f"```diff\n{one.diff}\n```" if one.diff else "The best skill is the seed skill."
    return tables.Section(f"Seed {one.seed}", changed, STEPS, rows)


def _score(measured: MeasuredScore) -> tuple[str, str]:
    mixed = (measured.hard + measured.soft) / 2
    return f"{measured.hard:.3f}", f"{mixed:.3f} [{measured.low:.3f}, {measured.high:.3f}]"


def _difference(table: PairedTable) -> str:
    return f"{table.delta:+.3f} [{table.low:+.3f}, {table.high:+.3f}]"
