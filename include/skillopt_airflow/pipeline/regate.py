"""`regate_<benchmark>`: every night the champion on fresh items, against the one before it and the seed skill."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, Param, chain, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import Conflict, DataError
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.addresses import regate_dag_id, rollback_dag_id
from skillopt_airflow.pipeline.alerts import when_late
from skillopt_airflow.pipeline.connections import open_run, published_skills
from skillopt_airflow.pipeline.failures import wrong_input_fails
from skillopt_airflow.pipeline.graph import dag_of, rollouts
from skillopt_airflow.pipeline.publishing import announce, champion_asset

if TYPE_CHECKING:
    from skillopt_airflow.store.aliases import Alias
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.training.regate import LedgerRow
    from skillopt_airflow.training.run import TrainingRun

DOC = """
Checks the champion of **{benchmark}** on the items of one night, `date=YYYY-MM-DD` below its fresh data: it, the
champion before it and the seed skill run on the same items; the evidence of all nights decides on keep, watch, demote
or stale.
A night is settled once, however often its run is cleared. Past nights, also for another target model:

    airflow backfill create --dag-id regate_{benchmark} --from-date 2026-11-01 --to-date 2026-11-30 \\
      --max-active-runs 1 --reprocess-behavior completed
    airflow backfill create ... --dag-run-conf '{{"target": "openai-chat:new-model"}}'
"""

FIRST_NIGHT = datetime(2020, 1, 1)


def decline_asset(benchmark: str) -> Asset:
    """Tells of a champion that was demoted or went stale: date, verdict and evidence in its extra."""
    return Asset(name=f"skillopt_{benchmark}_decline")


def regate_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Prepare the night, roll out, settle, and act on the verdict."""
    form = {
        "target": Param(
            None, type=["string", "null"], description="Another target model, such as after an upgrade; see the docs."
        ),
        "overrides": Param({}, type=["object", "null"], description='Any knob, such as {"regate.on_demote": "ask"}.'),
    }
    with dag_of(
        regate_dag_id(benchmark),
        DOC.format(benchmark=benchmark),
        benchmark,
        config,
        schedule=CronDataIntervalTimetable(config.regate.schedule, timezone="UTC"),
        start_date=FIRST_NIGHT,
        # Nights build on each other.
        max_active_runs=1,
        is_paused_upon_creation=True,
        params=form,
        deadline=when_late(config),
    ) as dag:
        prepared: Any = prepare_night(benchmark)
        run = prepared["run"]
        measure = rollouts(config, "measure", run, prepared)
        settled: Any = settle_night(run)
        demoted = demote.override(outlets=[champion_asset(benchmark)])(benchmark, run)
        question: Any = question_of(run)
        # A DAG run of its own: the night is over, whenever somebody answers.
        TriggerDagRunOperator(
            task_id="ask",
            trigger_dag_id=rollback_dag_id(benchmark),
            trigger_run_id=question["run_id"],
            conf=question["conf"],
            skip_when_already_exists=True,
            openlineage_inject_parent_info=False,
            # Nobody would be asked, and nobody know.
            fail_when_dag_is_paused=True,
        )
        told = tell.override(outlets=[decline_asset(benchmark)])(benchmark, run)
        chain(measure, settled, [demoted, question, told])
    return dag


@task
def prepare_night(benchmark: str) -> list[JsonObject]:
    """The chunks of all contenders on the night's items; pushes the run's reference as XCom `run`.

    Skips the night if it has no items yet, or nothing is published; returns chunks without items if it is settled.
    """
    from skillopt_airflow.pipeline.nights import prepare_night
    from skillopt_airflow.pipeline.preparation import checked_form

    context = get_current_context()
    # By the interval, since the logical date of a run by hand is the moment of the click.
    begin = context.get("data_interval_start")
    if begin is None:
        raise AirflowFailException("a night needs a date: trigger it with a logical date, or backfill it")
    date = f"{begin:%Y-%m-%d}"
    with wrong_input_fails():
        prepared = prepare_night(benchmark, date, checked_form(context))
    if isinstance(prepared, str):
        raise AirflowSkipException(prepared)
    run, chunks = prepared
    context["ti"].xcom_push("run", run.ref.model_dump())
    return chunks


@task(trigger_rule="none_failed_min_one_success")
def settle_night(run: JsonObject) -> JsonObject:
    """Store what the night found, once; returns the verdict."""
    from skillopt_airflow.pipeline.nights import base_target
    from skillopt_airflow.training.regate import settle_night
    from skillopt_airflow.training.transfer import write_transfers

    opened = open_run(run)
    try:
        row = settle_night(opened)
    except DataError as error:
        raise AirflowFailException(str(error)) from None
    write_transfers(opened, base_target(opened.ref.benchmark))
    return {"date": row.night.date, **row.judgement.model_dump(mode="json")}


@task
def demote(benchmark: str, run: JsonObject) -> JsonObject:
    """Move the champion back to the one before it, where `regate.on_demote` says so."""
    from skillopt_airflow.training.regate import demote

    context = get_current_context()
    opened = open_run(run)
    row, seen, artifacts = _to_demote(opened, "rollback")
    try:
        alias = artifacts.champion.read() if seen is None else demote(artifacts, row, seen, opened.ref.run)
    except Conflict as error:
        raise AirflowFailException(str(error)) from None
    # It may be this task that moved it, killed before it could tell.
    if alias is None or alias.run != opened.ref.run:
        raise AirflowSkipException("the champion has moved meanwhile")
    announce(context, benchmark, artifacts, alias)
    return alias.model_dump(mode="json")


@task(multiple_outputs=True)
def question_of(run: JsonObject) -> JsonObject:
    """The rollback that somebody has to approve, where `regate.on_demote` says ask."""
    opened = open_run(run)
    row, seen, _ = _to_demote(opened, "ask")
    previous = row.night.previous
    if seen is None or previous is None:
        raise AirflowSkipException(f"{row.night.date}: {row.judgement.verdict}, nobody is asked")
    storage = opened.ref.storage.model_dump(mode="json")
    return {
        "run_id": f"demote__{opened.ref.run}",
        "conf": {
            "version": previous.version,
            "leaving": seen.version,
            "reason": f"demoted on {row.night.date}: {row.judgement.reason}",
            "approval": True,
            "model.target": row.night.target,
            "overrides": {f"storage.{key}": value for key, value in storage.items()},
        },
    }


@task
def tell(benchmark: str, run: JsonObject) -> JsonObject:
    """Emit the event of a decline, once for a champion and for the benchmark's own target; else skipped.

    Done again, the task that told it tells it again: it may have been killed before Airflow heard of it.
    """
    from skillopt_airflow.pipeline.nights import base_target
    from skillopt_airflow.training.regate import settled, tells

    opened = open_run(run)
    row, nights = settled(opened)
    if row.night.target != base_target(benchmark) or not tells(opened, row, nights):
        raise AirflowSkipException(f"{row.night.date}: {row.judgement.verdict}, which is no news")
    said: JsonObject = {
        "benchmark": benchmark,
        "target": row.night.target,
        "date": row.night.date,
        "version": row.night.champion.version,
        "sha256": row.night.champion.sha256,
        **row.judgement.model_dump(mode="json"),
    }
    get_current_context()["outlet_events"][decline_asset(benchmark)].extra = said
    return said


def _to_demote(run: "TrainingRun", action: str) -> "tuple[LedgerRow, Alias | None, ArtifactStore]":
    """The night's row of the ledger, and the champion to leave, if that is what `regate.on_demote` does about it."""
    from skillopt_airflow.training.regate import settled, to_demote

    artifacts = published_skills(run.config.storage, run.ref.benchmark, str(run.config.model.target))
    row, nights = settled(run)
    return row, to_demote(row, nights, artifacts) if run.config.regate.on_demote == action else None, artifacts
