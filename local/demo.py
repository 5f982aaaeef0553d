"""`make demo`: a training of the sample benchmark in Airflow, with its progress from the REST API."""

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from local import airflow_services
from local.airflow_api import AirflowApi, Row
from local.environment import airflow_url, environment, uses_stand_in
from local.home import ADMIN, PROJECT, Home, Settings
from local.shell_commands import PROGRAMS, shell_path
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.run.history import History
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, evaluate_dag_id, train_dag_id
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run.run_record import RunRecord

BENCHMARK = "searchqa"
OVERRIDES = {"train.num_epochs": 2}
DAG, EPOCH_DAG = train_dag_id(BENCHMARK), epoch_dag_id(BENCHMARK)
WAITING = "EpochRun"
LOG_LINES = 30
PLAIN_WIDTH = 120
STAND_IN_NOTE = (
    "The models were the offline stand-in, which isn't a language model: an item is right exactly if the skill has the "
    "sentence that the item needs. The scores show that the loop works, not what a model can do. For real models, set "
    "AIRFLOW_CONN_SKILLOPT_TARGET and AIRFLOW_CONN_SKILLOPT_OPTIMIZER, and start again."
)


@dataclass(frozen=True)
class Training:
    """A training run and the runs of its epochs."""

    api: AirflowApi
    run_id: str
    storage: StorageGroup
    store: ObjectStore
    """The bucket of the run's documents."""

    @property
    def keys(self) -> RunKeys:
        return RunKeys(self.storage.prefix, BENCHMARK, run_name(self.run_id))

    def task_instances(self) -> Iterator[Row]:
        """Yield the task instances of the run, then those of its epochs."""
        yield from self.api.task_instances(DAG, self.run_id)
        for run in self.api.runs(EPOCH_DAG):
            if run["dag_run_id"].startswith(f"{self.run_id}__"):
                yield from self.api.task_instances(EPOCH_DAG, run["dag_run_id"])

    def failure(self) -> str:
        """Describe the first failed task, with the end of its log."""
        failed = [row for row in self.task_instances() if row["state"] == "failed" and row["operator"] != WAITING]
        if not failed:
            return "no task failed. See the UI"
        task = min(failed, key=lambda row: str(row["end_date"]))
        lines = self.api.log(task["dag_id"], task["dag_run_id"], task["task_id"], task["try_number"], task["map_index"])
        return "\n".join([f"the task {task['task_id']} failed. The end of its log:", *lines[-LOG_LINES:]])


def run(home: Home, settings: Settings) -> int:
    """Train, and show the progress and the result; the platform keeps running."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    is_offline = uses_stand_in(os.environ)
    api = airflow_services.api(settings)
    training = _training(home, api)
    began = time.monotonic()
    for dag_id in (DAG, EPOCH_DAG):
        api.wait_for_dag(dag_id)
    api.trigger(DAG, {"overrides": OVERRIDES}, training.run_id)
    console.print(f"Triggered {DAG} as {training.run_id}: {airflow_url(settings)}")
    if _watch(training, console) != "success":
        raise PlatformError(f"{DAG} {training.run_id} failed: {training.failure()}")
    console.print(f"Trained in {time.monotonic() - began:.0f} s")
    history = training.store.get_model(training.keys.history, History)
    for part in (_steps_table(history), *_outcome(history, training)):
        console.print(part, markup=False) if isinstance(part, str) else console.print(part)
    console.print(f"Airflow    {airflow_url(settings)}/dags/{DAG}/runs/{training.run_id}")
    console.print(f"Login      user {ADMIN}, password {settings.password}")
    console.print(f"State      {home.root}; the platform runs until `make down`")
    if is_offline:
        console.print(STAND_IN_NOTE)
    console.print(f"Next, in {PROJECT}: open the run's tab Skill report at the URL above, then run")
    for purpose, command in next_commands(history, home, training.storage):
        console.print(f"  # {purpose}\n  {command}", soft_wrap=True, markup=False)
    api.close()
    return 0


def _training(home: Home, api: AirflowApi) -> Training:
    """Return a training to trigger, with the bucket from benchmark.yaml and the connections."""
    os.environ.update(environment(home.root) | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"})
    from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
    from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config

    storage = benchmark_config(BENCHMARK).storage
    store = AirflowConnections().object_store(storage, storage.bucket)
    return Training(api, f"demo-{datetime.now(UTC):%Y%m%dT%H%M%S}", storage, store)


def _watch(training: Training, console: Console) -> str:
    columns = (TextColumn("training"), BarColumn(bar_width=32), MofNCompleteColumn(), TextColumn("steps"))
    bars = Progress(
        SpinnerColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[stage]}"),
        console=console,
        disable=not console.is_terminal,
    )
    began, shown = time.monotonic(), ""
    bar = bars.add_task("training", total=None, stage="")

    def on_poll(_: Row) -> None:
        nonlocal shown
        rows = list(training.task_instances())
        # An epoch's trigger only waits.
        running = sorted({str(row["task_id"]) for row in rows if row["state"] == "running"})
        record = training.store.find_model(training.keys.config, RunRecord)
        done, total = steps_done(rows), None if record is None else record.total_steps
        stage = ", ".join(running) or "between tasks"
        bars.update(bar, completed=done, total=total, stage=stage)
        text = f"{done} of {'?' if total is None else total} steps done; {stage}"
        if not console.is_terminal and text != shown:
            print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)
        shown = text

    with bars:
        return training.api.wait(DAG, training.run_id, on_poll)


def steps_done(rows: Iterable[Row]) -> int:
    """Count the finished steps among task instances."""
    gates = [row for row in rows if str(row["task_id"]).startswith("step_") and str(row["task_id"]).endswith(".gate")]
    return sum(row["state"] == "success" for row in gates)


def _steps_table(history: History) -> Table:
    title = f"{history.benchmark}: {history.metric} score on the selection split (seed {history.seed.score:.3f})"
    table = Table("", "candidate", "best", "gate", "edits applied", "edits skipped", "seconds", title=title)
    for moment in history.moments:
        bound = moment.decision.bound
        measured = "-" if moment.candidate is None else f"{moment.candidate.score:.3f}"
        table.add_row(
            moment.name.removeprefix("steps/"),
            measured if bound is None else f"<= {bound:.3f}",
            f"{moment.best_score:.3f}",
            moment.action,
            str(moment.edits_applied),
            str(len(moment.edits) - moment.edits_applied),
            f"{moment.seconds.wall:.1f}",
        )
    return table


def _outcome(history: History, training: Training) -> Iterator[str]:
    for name, score in history.test.items():
        yield f"Test       {name} (version {score.version}): hard {score.hard:.3f}, soft {score.soft:.3f}"
    accepted, made, _ = history.candidates
    yield f"Candidates {accepted} accepted, {made - accepted} not"
    yield f"Calls      {', '.join(f'{history.calls(role)} {role}' for role in ('optimizer', 'target'))}"
    published = history.published
    why = history.withheld if history.withheld else "no candidate beat the seed"
    yield f"Published  {f'nothing: {why}' if published is None else f'{published.version}: {published.key}'}"
    yield f"Run        {training.store.address(training.keys.folder)}"


def next_commands(history: History, home: Home, storage: StorageGroup) -> list[tuple[str, str]]:
    """Return commands to continue with, each with its purpose."""
    airflow, python = (shell_path(home.bin / program) for program in PROGRAMS)
    score, train = (f"{airflow} dags trigger {name(BENCHMARK)}" for name in (evaluate_dag_id, train_dag_id))
    overrides = """'{"overrides": {"optimizer.learning_rate": 2, "train.num_epochs": 1}}'"""
    again = ("train again with other settings", f"{train} --conf {overrides}")
    if history.published is None:
        return [("score the seed skill", f"""{score} --conf '{{"skills": ["seed"]}}'"""), again]
    fetch = f"{python} include/skillopt_airflow/consumer.py fetch --bucket {storage.artifact_bucket}"
    below = f"--prefix {shlex.quote(storage.prefix)} " if storage.prefix else ""
    which = f"{below}--benchmark {BENCHMARK} --target {shlex.quote(history.target)}"
    question = """'{"skills": ["seed", "champion"]}'"""
    return [
        ("fetch the published skill, as a deployment does", f"{fetch} {which} --out {shell_path(home.root / 'skill')}"),
        ("score it against the seed skill", f"{score} --conf {question}"),
        again,
    ]
