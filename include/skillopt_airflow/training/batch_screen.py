"""A step's candidate on the step's own batch, before it may go to the selection split."""

import logging
from collections.abc import Sequence

from skillopt_airflow.core.item_scores import Evaluation, covers
from skillopt_airflow.core.screening import Screening, screened
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Split
from skillopt_airflow.training.evaluation import measured_on
from skillopt_airflow.training.rollout_plan import Chunk, chunks_of, ids
from skillopt_airflow.training.run import TrainingRun

log = logging.getLogger(__name__)


def screens(run: TrainingRun, moment: Moment) -> bool:
    """Return whether the moment's candidate is screened: only a step has a batch, and only a gate can reject."""
    return run.config.evaluation.screens and moment.kind == "step"


def screen_chunks(run: TrainingRun, moment: Moment, skills: Sequence[str]) -> list[Chunk]:
    """Return the rollouts of candidates, by key, on the items of the batch that the current skill has a score for.

    None where nothing screens, or where these are too few to decide on.
    """
    if not skills or not screens(run, moment):
        return []
    current = _on_batch(run, moment, _current(run, moment))
    if not covers(current, run.config.evaluation):
        return []
    item_ids = [item_id for item_id in ids(run.batch(moment)) if item_id in current.scores]
    return chunks_of(run.config, "screen", skills, Split.TRAIN, item_ids, run.batch_draws(moment)[:1])


def passes(run: TrainingRun, moment: Moment, candidate: SkillDocument) -> bool:
    """Return whether the candidate goes to the selection split; where it was screened, store how that came out."""
    if not screens(run, moment):
        return True
    current = _on_batch(run, moment, _current(run, moment))
    found = screened(candidate.sha256, _on_batch(run, moment, candidate), current, run.config.evaluation)
    run.store.put_model(run.keys.moment(moment).screen, found)
    table = found.against_current
    log.info(
        "on %d of the batch's %d items: current %.4f, candidate %.4f, %s",
        *(table.pairs, found.items, table.other_score, table.score),
        "goes on" if found.passed else "screened out",
    )
    return found.passed


def screening(run: TrainingRun, moment: Moment, candidate: SkillDocument) -> Screening | None:
    """Return how the candidate's screen came out; None if it had none."""
    if not screens(run, moment):
        return None
    found = run.store.find_model(run.keys.moment(moment).screen, Screening)
    return found if found is not None and found.candidate == candidate.sha256 else None


def _current(run: TrainingRun, moment: Moment) -> SkillDocument:
    return run.skill(run.state_before(moment).current.version)


def _on_batch(run: TrainingRun, moment: Moment, skill: SkillDocument) -> Evaluation:
    return measured_on(run, Split.TRAIN, skill, run.batch_draws(moment)[:1], run.batch(moment))
