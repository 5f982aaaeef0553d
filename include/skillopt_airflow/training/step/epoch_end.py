"""The stages of an epoch's end: longitudinal comparison, slow update, meta reflection."""

import logging
from concurrent.futures import ThreadPoolExecutor

from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.run.state import tried_edits
from skillopt_airflow.core.run.timeline import Moment, edit_budget, leaves_memory, sample, writes_guidance
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.pictures import sizes
from skillopt_airflow.core.values.types import ItemRef, JsonObject, Patch, Split
from skillopt_airflow.optimizer.comparison import Comparison, compare
from skillopt_airflow.optimizer.comparison import slow_update as write_guidance
from skillopt_airflow.optimizer.meta_skill import EpochStep, meta_skill
from skillopt_airflow.optimizer.meta_skill import meta_reflect as reflect_on_epoch
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun, shown_items
from skillopt_airflow.training.run.stage_models import open_assistants
from skillopt_airflow.training.step.candidate import propose

log = logging.getLogger(__name__)


def compare_epochs(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the sampled training items under the last skills of the previous and this epoch.

    Equal skills run once. The first epoch has no comparison.
    """
    skills = [run.keys.skill(version) for version in sorted(set(_pair(run, moment)))]
    chunks = chunks_of(run.config, "compare_epochs", skills, Split.TRAIN, ids(_sampled(run, moment)))
    chunks = chunks if moment.compares else []
    return store_plan(run, moment, "compare_epochs", chunks)


def slow_update(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Write guidance for the skill and memory for the optimizer; return the candidate's chunks."""
    store, state = run.store, run.state_before(moment)
    skill, previous = (run.skill(version) for version in (state.current.version, _pair(run, moment)[0]))
    comparison = _comparison(run, moment)
    store.put_model(run.keys.moment(moment).comparison, comparison)
    with open_assistants(run, moment, "slow_update") as models, ThreadPoolExecutor(1) as pool:
        patch, remembered, room = Patch(), None, run.prompt_room
        if leaves_memory(moment, run.config):
            texts, steps = (state.meta_skill, skill.text, previous.text), epoch_steps(run, moment.epoch)
            remembered = pool.submit(meta_skill, models.optimizer, *texts, comparison, steps, room)
        if writes_guidance(moment, run.config.optimizer):
            former = skill.region("SLOW_UPDATE") or ""
            patch = write_guidance(models.optimizer, skill.text, previous.text, former, comparison, room)
            log.info("slow update: %s", patch.edits[0].rationale)
        if remembered is not None:
            memory, fallback = remembered.result()
            store.put_text(run.keys.meta_skill(moment.epoch), memory)
            patch = patch.also(fallback)
        return propose(run, moment, patch)


def meta_reflect(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Propose edits from the epoch's accepted and rejected edits; return the candidate's chunks."""
    with open_assistants(run, moment, "meta_reflect") as models:
        skill = run.skill(run.state_before(moment).current.version)
        # Its edits are patches in every skill_update_mode.
        optimizer = run.config.optimizer.model_copy(update={"skill_update_mode": "patch"})
        budget = edit_budget(moment.step, run.record.total_steps, optimizer)
        most = run.config.optimizer.learning_rate if budget is None else budget
        patch = reflect_on_epoch(models.optimizer, skill.text, epoch_steps(run, moment.epoch), most)
        return propose(run, moment, patch)


def epoch_steps(run: TrainingRun, epoch: int) -> list[EpochStep]:
    """Return the edits of the epoch's steps and the gate's decisions."""
    steps = []
    for moment in run.timeline:
        if moment.kind == "step" and moment.epoch == epoch:
            keys = run.keys.moment(moment)
            decision = run.store.get_model(keys.gate, GateDecision)
            ranked = run.store.get_model(keys.ranked_edits, Patch)
            report = run.store.get_model(keys.edit_apply_report, EditApplyReport)
            table = decision.against_current
            steps.append(
                EpochStep(
                    step=moment.step,
                    action=decision.action,
                    score_before=table.other_score if table.pairs else None,
                    score_after=table.score if table.pairs else None,
                    interval=(table.low, table.high) if table.pairs else None,
                    edits=tried_edits(ranked, report),
                )
            )
    return steps


def _sampled(run: TrainingRun, moment: Moment) -> list[ItemRef]:
    seed = f"{run.config.train.seed}-longitudinal-{moment.epoch}"
    return sample(run.item_refs(Split.TRAIN), run.config.optimizer.slow_update_samples, seed)


def _pair(run: TrainingRun, moment: Moment) -> tuple[int, int]:
    first = next(other for other in run.timeline if other.kind == "step" and other.epoch == moment.epoch)
    return run.state_before(first).current.version, run.state_before(moment).current.version


def _comparison(run: TrainingRun, moment: Moment) -> Comparison:
    if not moment.compares:
        return Comparison()
    items = _sampled(run, moment)
    before, after = (run.stored(Split.TRAIN, run.skill(version), 0, items) for version in _pair(run, moment))
    shown = shown_items(run, Split.TRAIN, [*before.values(), *after.values()])
    seen = {item.id: sizes(item) for item in shown}
    return compare(before, after, ids(items), run.config.optimizer.longitudinal_pair_policy, seen)
