"""The next step's reflection ahead: the optimizer thinks about the batch ahead while a candidate is measured.

What is asked supposes that the candidate is rejected. Each answer is stored where the next step looks for it, so that
it then asks the same and has its edits at once; after an acceptance it asks something else, and these were in vain.
"""

import logging
from collections.abc import Collection, Sequence

from skillopt_airflow.core.buffer import BufferEntry, ReflectedItems, ReflectionAhead, StepBuffer, entry_of
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.run_history import AskedAhead
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch
from skillopt_airflow.core.verdict import Action
from skillopt_airflow.training.candidate import tried_edits
from skillopt_airflow.training.reflection import StepReflection, fits, stored_ahead
from skillopt_airflow.training.rollout_plan import BATCH_AHEAD, stored_chunks
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.stage_models import Assistants, optimizing

log = logging.getLogger(__name__)


def reflect_ahead(run: TrainingRun, moment: Moment, calls: int | None = None) -> None:
    """Ask for the step that follows what it will ask if the moment's candidate is rejected.

    Nothing is asked where its batch was not rolled out ahead. No more than `calls` are in flight, where that is a
    number. A model that does not answer is no failure: the step asks again when it is its turn.
    """
    wanted = run.config.gradient.reflect_ahead and not run.committed(moment)
    if not wanted or not stored_chunks(run, moment, BATCH_AHEAD):
        return
    following = run.timeline[run.timeline.index(moment) + 1]
    state, key = run.state_before(moment), run.keys.moment(moment).reflection_ahead
    same_epoch = following.epoch == moment.epoch
    buffer = state.buffer.with_entry(_rejected(run, moment)) if same_epoch else StepBuffer()
    asked = StepReflection(run, following, state.model_copy(update={"buffer": buffer}), ahead=True)
    before = stored_ahead(run, moment)
    found = ReflectionAhead(buffer=buffer, reflected=asked.batch.seen, calls=0 if before is None else before.calls)
    # It is stored before anything is asked: what the step that follows is shown depends on it alone.
    run.store.put_model(key, found)
    workers = run.config.gradient.analyst_workers
    workers = workers if calls is None else min(workers, calls)
    with optimizing(run, moment, "reflect_ahead", workers=workers, asked_by=following) as models:
        try:
            _ask(asked, models, workers)
        except ModelError as error:
            log.warning("%s is not reflected on ahead: %s", following.name, error)
        finally:
            run.store.put_model(key, found.model_copy(update={"calls": found.calls + len(models.calls)}))


def asked_ahead(run: TrainingRun, moments: Sequence[Moment], accepted: Collection[str]) -> AskedAhead:
    """Count the calls that were made ahead, and those in vain.

    Args:
        run: the run.
        moments: those that it reached, in order.
        accepted: names of those that changed the skill.
    """
    calls = wasted = 0
    reached = set(moments)
    for moment in moments:
        ahead = stored_ahead(run, moment) if moment.kind == "step" else None
        if ahead is None:
            continue
        following = run.timeline[run.timeline.index(moment) + 1]
        used = following in reached and moment.name not in accepted and _fitted(run, following, ahead)
        calls += ahead.calls
        wasted += 0 if used else ahead.calls
    return AskedAhead(calls=calls, wasted=wasted)


def _ask(asked: StepReflection, models: Assistants, workers: int) -> None:
    """Ask all that the step will, but for what needs the scores of the step before."""
    patches = [patch for _, patch in asked.reflected(models, 1, workers)]
    merged = asked.merged(models, patches, workers)
    if not asked.run.config.optimizer.chooses_rate:
        asked.selected(models, merged, asked.budget)


def _fitted(run: TrainingRun, following: Moment, ahead: ReflectionAhead) -> bool:
    seen = run.store.get_model(run.keys.moment(following).reflected_items, ReflectedItems)
    return fits(ahead, run.state_before(following), seen)


def _rejected(run: TrainingRun, moment: Moment) -> BufferEntry:
    """Return what the buffer will have of the moment if its candidate is rejected, but for the scores."""
    keys = run.keys.moment(moment)
    reflected = run.store.get_model(keys.reflected_items, ReflectedItems)
    patterns = run.store.get_model(keys.ranked_edits, Patch).failure_patterns
    return entry_of(moment.step, reflected, patterns, Action.REJECT, tried_edits(run, keys), (None, None))
