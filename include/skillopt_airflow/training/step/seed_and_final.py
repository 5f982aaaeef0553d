"""The two ends of a run: the seed's measurement, and the last skill's competition with the test that follows."""

import logging
from collections.abc import Iterable

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import covers
from skillopt_airflow.core.gate.measured_score import require_coverage
from skillopt_airflow.core.run.state import Measured, RunState, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.provenance import LinesOfSkill, continue_origins, seed_lines
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import JsonObject, Split
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, Stage, chunks_of, ids, store_plan, stored_chunks
from skillopt_airflow.training.run.named_skill import NamedSkill
from skillopt_airflow.training.run.run import TrainingRun

log = logging.getLogger(__name__)


def opened(seed: SkillDocument, config: TrainConfig) -> SkillDocument:
    """Return the seed with the regions that this run writes into, opened before it is measured."""
    optimizer = config.optimizer
    if optimizer.use_slow_update and seed.region("SLOW_UPDATE") is None:
        seed = seed.with_region("SLOW_UPDATE", "")
    if optimizer.use_skill_aware_reflection and seed.region("APPENDIX") is None:
        seed = seed.with_region("APPENDIX", "")
    return seed


def store_seed(run: TrainingRun, init: NamedSkill, seed: SkillDocument) -> None:
    """Store version 0, which is `init` with the regions that this run writes into, and where its lines come from."""
    moment = run.timeline[0].name
    lines = seed_lines(seed, moment)
    if init.version:
        lines = continue_origins(init.document, init.lines, init.run, seed, moment)
    run.store.put_text(run.keys.skill(0), seed.text)
    run.store.put_model(run.keys.line_origins(0), LinesOfSkill(lines=lines))


def seed_plan(run: TrainingRun) -> list[JsonObject]:
    return store_plan(run, run.timeline[0], "seed", _chunks(run, "seed", Split.VAL, [0]))


def seed_test_plan(run: TrainingRun) -> list[JsonObject]:
    """Plan the seed's rollouts on the test split, which need not wait for the training.

    With a budget they do, since tasks beside each other would each have a part of what is left.
    """
    now = run.config.evaluation.eval_test and not run.config.budget.is_limited
    chunks = _chunks(run, "test", Split.TEST, [0]) if now else []
    return store_plan(run, run.timeline[0], "test", chunks)


def start(run: TrainingRun) -> RunState:
    """Turn the seed's evaluation into the state that the first step starts from.

    Raises:
        DataError: too few items have a score to compare anything with it.
    """
    moment, seed = run.timeline[0], run.skill(0)
    evaluation = measured(run, Split.VAL, seed)
    rules, advice = run.config.evaluation, "clear evaluate_seed and what follows it to try these again"
    require_coverage(evaluation, rules, "the seed skill on the selection split", advice)
    state = seed_state(moment, Measured(version=0, sha256=seed.sha256, evaluation=evaluation))
    log.info("seed skill: %.4f on %d items", evaluation.gate_mean(rules), evaluation.size)
    # Items that failed before may have a score by now, and the steps were compared without them.
    run.commit(moment, state)
    return state


def last_plan(run: TrainingRun) -> list[JsonObject]:
    """Plan the last skill's rollouts on the selection split, if it was never measured well enough."""
    moment = run.timeline[-1]
    state = run.state_before(moment)
    chunks = [] if _is_measured(run, state) else _chunks(run, "final", Split.VAL, [state.current.version])
    return store_plan(run, moment, "final", chunks)


def finish(run: TrainingRun) -> list[JsonObject]:
    """Let the last skill compete with the best one; return the test's chunks, equal texts once.

    A run that was stopped is not tested: it has no budget left for that.
    """
    moment, rules = run.timeline[-1], run.config.evaluation
    state = run.state_before(moment)
    if _is_measured(run, state):
        final = state.model_copy(update={"moment": moment.name})
    else:
        last = state.current.model_copy(
            update={
                "evaluation": measured(run, Split.VAL, run.skill(state.current.version)),
                "has_new_notes": False,
            }
        )
        # By the mean alone: there are no fresh rollouts for a policy that would ask for them.
        by_mean = rules.model_copy(update={"gate_policy": "strict", "gate_protected_items": ()})
        best = state.best.evaluation
        skills = (run.skill(last.version), run.skill(state.best.version)) if rules.use_semantic_density else None
        decision = decide(last.evaluation, best, best, by_mean, skills=skills)
        final = compete(state, moment, last, decision)
        run.store.put_model(run.keys.moment(moment).gate, decision)
        log.info("last skill against best: %s, %s", decision.action, decision.reason)
    run.commit(moment, final)
    return store_plan(run, moment, "test", [] if final.stopped else _tested(run, final))


def compete(state: RunState, moment: Moment, last: Measured, decision: GateDecision) -> RunState:
    best = last if decision.action is Action.ACCEPT_NEW_BEST else state.best
    return state.model_copy(update={"moment": moment.name, "current": last, "best": best})


def tested_versions(run: TrainingRun, final: RunState) -> dict[str, int]:
    """Return the versions of the skill that the test measures, by the names that the report gives them."""
    versions = {"seed": 0}
    if run.config.evaluation.eval_test == "each_epoch":
        ends = {moment.epoch: moment for moment in run.timeline[1:-1]}
        versions |= {f"epoch {epoch}": run.state(moment).current.version for epoch, moment in ends.items()}
    return {**versions, "best": final.best.version, "last": final.current.version}


def _is_measured(run: TrainingRun, state: RunState) -> bool:
    known = not state.current.has_new_notes or bool(state.stopped)
    return known and covers(state.current.evaluation, run.config.evaluation)


def _chunks(run: TrainingRun, stage: Stage, split: Split, versions: Iterable[int]) -> list[Chunk]:
    items, skills = ids(run.item_refs(split)), [run.keys.skill(version) for version in versions]
    return chunks_of(run.config, stage, skills, split, items, range(run.config.evaluation.draws))


def _tested(run: TrainingRun, final: RunState) -> list[Chunk]:
    """Return the test's chunks of all skills but a seed that has its own plan; equal texts share their rollouts."""
    if not run.config.evaluation.eval_test:
        return []
    texts = {run.skill(version).sha256: version for version in tested_versions(run, final).values()}
    if any(chunk.item_ids for chunk in stored_chunks(run, run.timeline[0], "test")):
        texts.pop(run.skill(0).sha256)
    return _chunks(run, "test", Split.TEST, texts.values())
