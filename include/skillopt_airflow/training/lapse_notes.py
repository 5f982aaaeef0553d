"""Notes of lapses that do not pass the gate: a step adds them to the skill, and the next candidate measures them."""

from typing import TYPE_CHECKING

from skillopt_airflow.core.edits import EditApplyReport, EditReport, apply_edits
from skillopt_airflow.core.provenance import LinesOfSkill, trace
from skillopt_airflow.core.state import Measured, RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.training_groups import OptimizerGroup
from skillopt_airflow.core.types import Patch
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.keys import MomentKeys


def notes_enter(rules: OptimizerGroup) -> bool:
    """Return whether notes enter the skill without asking the gate."""
    return rules.use_skill_aware_reflection


def store_notes(run: TrainingRun, keys: "MomentKeys", notes: Patch) -> None:
    """Store the notes of a step, if it has any."""
    if notes.edits:
        run.store.put_model(keys.notes, notes)
    else:
        # The step may have had some before it was done again.
        run.store.delete(keys.notes)


def note_rows(run: TrainingRun, moment: Moment) -> tuple[EditReport, ...]:
    """Return the outcome of each note that the moment added without the gate."""
    if not notes_enter(run.config.optimizer):
        return ()
    report = run.store.find_model(run.keys.moment(moment).notes_apply_report, EditApplyReport)
    return () if report is None else report.rows


def with_notes(run: TrainingRun, moment: Moment, state: RunState) -> RunState:
    """Return the state with the moment's notes in the current skill, as one more version with the scores of the last.

    The best skill has none that were not measured with it.
    """
    keys = run.keys.moment(moment)
    if not notes_enter(run.config.optimizer):
        return state
    run.store.delete(keys.notes_apply_report)
    if not run.store.exists(keys.notes):
        return state
    current, number = state.current, state.newest + 1
    skill, lines = run.skill(current.version), run.store.get_model(run.keys.line_origins(current.version), LinesOfSkill)
    noted, report = apply_edits(skill, run.store.get_model(keys.notes, Patch).edits)
    if noted == skill:
        return state
    behind = len(run.store.get_model(keys.edit_apply_report, EditApplyReport).rows)
    rows = tuple(row.model_copy(update={"index": behind + row.index}) for row in report.rows)
    report = report.model_copy(update={"rows": rows})
    run.store.put_model(keys.notes_apply_report, report)
    run.store.put_text(run.keys.skill(number), noted.text)
    origins = LinesOfSkill(lines=trace(skill, lines.lines, report, moment.name))
    run.store.put_model(run.keys.line_origins(number), origins)
    measured = Measured(version=number, sha256=noted.sha256, evaluation=current.evaluation, has_new_notes=True)
    return state.model_copy(update={"current": measured, "newest": number})
