"""`regate_<benchmark>`: nightly check of the champion on fresh items."""

from datetime import datetime
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Asset, Context, CronDataIntervalTimetable, Param, chain, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.graph import dag_of, engine_queue, rollouts
from skillopt_airflow.pipeline.publishing import champion_asset, emit_champion_event
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.pipeline.tasks.dag_ids import (
    prefixed,
    publish_dag_id,
    regate_dag_id,
    rollback_dag_id,
    train_dag_id,
)
from skillopt_airflow.pipeline.tasks.stages import PREPARING
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input, late_alert
from skillopt_airflow.store.keys import RegateKeys, night_name
from skillopt_airflow.training.run.run_record import RunRef

DOC = """
Checks the champion of **{benchmark}** on the items of one night, `date=YYYY-MM-DD` in its fresh data. The champion, the
previous champion and the seed skill run on the same items. The evidence of all nights decides: keep, watch, demote,
stale or drift.
A night is concluded once, even if its run is cleared. To run past nights, also for another target model:

    airflow backfill create --dag-id {dag_id} --from-date 2026-11-01 --to-date 2026-11-30T23:59:59 \\
      --max-active-runs 1 --reprocess-behavior completed --dag-run-conf '{{}}'
    airflow backfill create ... --dag-run-conf '{{"target": "openai-chat:new-model"}}'

The command's dates are timestamps in Airflow's default time zone, unless they name another one. The nights' time zone
is {timezone}. Without `--dag-run-conf`, a night's run keeps its last one, including another target.
"""

FIRST_NIGHT = datetime(2020, 1, 1)
RETRIES = 6
"""Retries of the first task; with the default delays they last ten minutes, enough for a model server to start."""


def decline_asset(benchmark: str) -> Asset:
    """Return the asset of declined champions; its events have date, verdict and evidence."""
    return Asset(name=prefixed(f"skillopt_{benchmark}_decline"))


def regate_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: prepare the night, roll out, conclude, and act on the verdict."""
    form = {
        "target": Param(
            None,
            type=["string", "null"],
            description="Another target model, for example after an upgrade; see the docs.",
        ),
        "overrides": Param({}, type=["object", "null"], description='Any knob, such as {"regate.on_demote": "ask"}.'),
    }
    with dag_of(
        regate_dag_id(benchmark),
        DOC.format(benchmark=benchmark, dag_id=regate_dag_id(benchmark), timezone=config.regate.timezone),
        benchmark,
        config,
        schedule=CronDataIntervalTimetable(config.regate.schedule, timezone=config.regate.timezone),
        start_date=FIRST_NIGHT,
        # Nights build on each other.
        max_active_runs=1,
        is_paused_upon_creation=True,
        form=form,
        deadline=late_alert(config),
    ) as dag:
        prepared: Any = prepare_night.override(**engine_queue(config))(benchmark)
        run = prepared["run"]
        measure = rollouts(config, "measure", run, prepared)
        settled: Any = settle_night(run)
        # Inlets, because the tasks look up the asset's events.
        champion, decline = [champion_asset(benchmark)], [decline_asset(benchmark)]
        demoted = demote.override(inlets=champion, outlets=champion)(benchmark, run)
        question: Any = question_of(run)
        # A separate DAG run, so that the night doesn't wait for the answer.
        TriggerDagRunOperator(
            task_id="ask",
            trigger_dag_id=rollback_dag_id(benchmark),
            trigger_run_id=question["run_id"],
            conf=question["conf"],
            skip_when_already_exists=True,
            openlineage_inject_parent_info=False,
            # Otherwise the question would be lost without notice.
            fail_when_dag_is_paused=True,
        )
        told = tell.override(inlets=decline, outlets=decline)(benchmark, run)
        # Roll back first: a training that this event starts begins with the champion.
        chain(measure, settled, [demoted, question])
        chain([settled, demoted], told)
    return dag


@task(execution_timeout=PREPARING, retries=RETRIES)
def prepare_night(benchmark: str) -> list[JsonObject]:
    """Return the chunks of all contenders; push the run's reference as XCom `run`.

    Skips a night without items or without a champion; returns empty chunks for a concluded night.
    """
    from skillopt_airflow.pipeline.tasks.triggered import base_target, checked_form, night_config, night_date
    from skillopt_airflow.training.champion.night_plan import Commands, prepare_night

    context = get_current_context()
    # Use the interval: a manual run's logical date is the time of the click.
    begin = context.get("data_interval_start")
    if begin is None:
        raise AirflowFailException(
            "a night needs a date: backfill it, or trigger it with a logical date shortly after its end, such as 00:01 "
            "of the next day; midnight itself belongs to a scheduled run of another night"
        )
    with fail_on_wrong_input(awaits_models=True):
        form = checked_form(context)
        config = night_config(benchmark, form)
        date = night_date(begin, config)
        name = night_name(date, str(config.model.target))
        run = open_run(RunRef(benchmark=benchmark, run=name, storage=config.storage))
        commands = Commands(publish_dag_id(benchmark), form["overrides"] or {})
        prepared = prepare_night(run, config, date, base_target(benchmark), commands)
    if isinstance(prepared, str):
        raise AirflowSkipException(prepared)
    context["ti"].xcom_push("run", run.ref.model_dump())
    return prepared


@task(trigger_rule="none_failed_min_one_success")
def settle_night(run: JsonObject) -> JsonObject:
    """Store the night's result once; return the verdict."""
    from skillopt_airflow.pipeline.tasks.triggered import base_target
    from skillopt_airflow.training.champion.night_conclusion import conclude_night, write_series
    from skillopt_airflow.training.champion.target_change import write_target_changes

    opened = open_run(run)
    with fail_on_wrong_input():
        row = conclude_night(opened)
    keys = RegateKeys(opened.ref.storage.prefix, opened.ref.benchmark, row.night.target)
    write_series(opened.store, keys, opened.config.regate.alpha, row)
    write_target_changes(opened, base_target(opened.ref.benchmark))
    return {"date": row.night.date, **row.judgement.model_dump(mode="json")}


@task
def demote(benchmark: str, run: JsonObject) -> JsonObject:
    """Roll back the champion if `regate.on_demote` is rollback; emit the event once."""
    from skillopt_airflow.training.champion.night_conclusion import demote

    opened, context = open_run(run), get_current_context()
    with fail_on_wrong_input():
        alias = demote(opened)
    if isinstance(alias, str):
        raise AirflowSkipException(alias)
    if _was_emitted(context, champion_asset(benchmark), {"version": alias.version, "run": alias.run}):
        raise AirflowSkipException(f"{alias.version} is the champion; its event was emitted before")
    emit_champion_event(context, benchmark, opened.published, alias)
    return alias.model_dump(mode="json")


@task(multiple_outputs=True)
def question_of(run: JsonObject) -> JsonObject:
    """Return the rollback to approve if `regate.on_demote` is ask."""
    from skillopt_airflow.training.champion.night_conclusion import rollback_question

    asked = rollback_question(open_run(run))
    if isinstance(asked, str):
        raise AirflowSkipException(asked)
    return asked


@task(trigger_rule="none_failed_min_one_success")
def tell(benchmark: str, run: JsonObject) -> JsonObject:
    """Emit a decline event once per champion, for the benchmark's own target only; otherwise skip.

    A cleared task emits it again only if it was killed before Airflow stored the event.
    """
    from skillopt_airflow.pipeline.tasks.triggered import base_target
    from skillopt_airflow.training.champion.night_conclusion import claim_report, decline_event

    opened, context = open_run(run), get_current_context()
    news, asset = decline_event(opened, base_target(benchmark)), decline_asset(benchmark)
    if isinstance(news, str):
        raise AirflowSkipException(news)
    # The same DAG run may have run for another target since.
    if _was_emitted(context, asset, {key: news[key] for key in ("target", "date", "sha256")}):
        raise AirflowSkipException(f"{news['date']}: the event was emitted before")
    started = train_dag_id(benchmark)
    if opened.config.regate.train_on_decline and context["ti"].get_dag(started).is_paused:
        raise AirflowFailException(
            f"{started} is paused, and Airflow would drop this event instead of starting it. Unpause it, then clear "
            "this task"
        )
    # Claim last: later nights may emit an event that failed above.
    if not claim_report(opened, news):
        raise AirflowSkipException(f"{news['date']}: another night emits it")
    context["outlet_events"][asset].extra = news
    return news


def _was_emitted(context: Context, asset: Asset, same: JsonObject) -> bool:
    """Return whether this DAG run has already emitted an event of the asset with these values."""
    run = context["dag_run"]
    return any(
        (event.source_dag_id, event.source_run_id) == (run.dag_id, run.run_id)
        and event.extra is not None
        and same.items() <= event.extra.items()
        for event in context["inlet_events"][asset]
    )
