"""The report of a run that goes on: its history so far, and the task that runs now, from what the run has stored."""

from collections.abc import Mapping, Sequence

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import FINAL, Moment, MomentKind
from skillopt_airflow.report.view import ReportView
from skillopt_airflow.store.keys import MomentKeys
from skillopt_airflow.training.history import history_so_far
from skillopt_airflow.training.reporting import with_skill
from skillopt_airflow.training.rollout_stages import label_of
from skillopt_airflow.training.run import TrainingRun

FIRST_TASKS: Mapping[MomentKind, str] = {
    "seed": "prepare",
    "step": "rollout",
    "slow_update": "longitudinal",
    "meta_reflect": "meta_reflect",
    "final": "measure_last",
}
"""The task of a moment that has stored nothing yet."""


def live_view(run: TrainingRun) -> ReportView | None:
    """Return what the page of the run shows now; None before its seed is measured."""
    try:
        return with_skill(run, history_so_far(run, run.newest_state()), task=current_task(run))
    except ObjectMissing:
        # The seed's own state is stored right after that of the run.
        return None


def has_ended(run: TrainingRun) -> bool:
    newest = run.store.find_model(run.keys.runtime_state, RunState)
    return newest is not None and newest.moment == FINAL and run.store.exists(run.keys.report)


def current_task(run: TrainingRun) -> str:
    """Return the moment under way and its task, as `Step 3: evaluate`."""
    newest = run.store.find_model(run.keys.runtime_state, RunState)
    moment = run.timeline[0] if newest is None else _following(run, newest)
    keys, begun = run.keys.moment(moment), run.store.list_dated(run.keys.runtime_state).values()
    dated = run.store.list_dated(keys.folder).items()
    # Older documents are left over from an earlier attempt.
    stored = {key for key, written in dated if written >= max(begun, default=written)}
    reached = [task for key, task in _documents(keys) if key in stored]
    return f"{label_of(moment)}: {reached[-1] if reached else FIRST_TASKS[moment.kind]}"


def _following(run: TrainingRun, newest: RunState) -> Moment:
    """Return the moment after the newest state; the run's end follows a stop, and nothing follows the end."""
    names = [moment.name for moment in run.timeline]
    return run.timeline[-1 if newest.stopped else min(names.index(newest.moment) + 1, len(names) - 1)]


def _documents(keys: MomentKeys) -> Sequence[tuple[str, str]]:
    """Return documents of moments in the order in which they are stored, each with the task that runs from then on."""
    return (
        (keys.plan("rollout"), "rollout"),
        (keys.plan("longitudinal"), "rollout"),
        (keys.reflected_items, "update"),
        (keys.merged_patch, "update"),
        (keys.comparison, "slow_update"),
        (keys.plan("evaluate"), "evaluate"),
        (keys.gate, "gate"),
        (keys.plan("final"), "evaluate_last"),
        (keys.plan("test"), "test"),
        # The seed's test runs next to it.
        (keys.plan("seed"), "evaluate_seed"),
    )
