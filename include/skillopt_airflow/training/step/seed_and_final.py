"""The start and end of a run: the initial skill and its measurement, the last skill, and the test."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate.decision import Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import covers
from skillopt_airflow.core.gate.measured_score import require_coverage
from skillopt_airflow.core.run.state import Measured, RunState, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.provenance import LineOrigin, LinesOfSkill, continue_origins, seed_lines
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person
from skillopt_airflow.core.values.types import JsonObject, Split
from skillopt_airflow.store.artifacts import ArtifactStore, is_version
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, PlanKind, chunks_of, ids, store_plan, stored_chunks
from skillopt_airflow.training.run.run import TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)


class NamedSkill(NamedTuple):
    """A skill found by its name."""

    document: SkillDocument
    version: str = ""
    """Its published version; empty if it isn't published."""
    run: str = ""
    """The run that trained the version."""
    lines: tuple[LineOrigin, ...] = ()
    """Origins of the version's lines."""


def find_skill(asked: str, seed: SkillDocument, artifacts: ArtifactStore, client: "S3Client") -> NamedSkill:
    """Find the skill that a user named.

    Args:
        asked: `seed`, `champion`, a version such as `v0003-0123456789ab`, an `s3://` URL, or a skill's text.

    Raises:
        ConfigError: the name is invalid, or there is no champion.
        SkillError: the text has hidden characters or commands.
        StoreError: nothing is stored under the version or URL.
    """
    if asked == "seed":
        return NamedSkill(seed)
    if asked == "champion":
        champion = artifacts.champion.read()
        if champion is None:
            raise ConfigError("skill champion: nothing is published for this benchmark and target yet")
        return _published(champion.version, artifacts)
    if is_version(asked):
        return _published(asked, artifacts)
    if asked.startswith("s3://"):
        bucket, _, key = asked.removeprefix("s3://").partition("/")
        return NamedSkill(skill_of_person(ObjectStore(client, bucket).get_text(key), asked))
    if any(character.isspace() for character in asked.strip()):
        return NamedSkill(skill_of_person(asked, "the text of the skill"))
    raise ConfigError(
        f"skill {asked!r}: expected seed, champion, a version such as v0003-0123456789ab, an s3:// URL, or the "
        "text of a skill"
    )


def _published(version: str, artifacts: ArtifactStore) -> NamedSkill:
    found = artifacts.read(version)
    return NamedSkill(SkillDocument(found.skill), version, found.manifest.run, found.manifest.lines)


def with_run_regions(seed: SkillDocument, config: TrainConfig) -> SkillDocument:
    """Return the seed with the protected regions that this run writes into."""
    optimizer = config.optimizer
    if optimizer.use_slow_update and seed.region("SLOW_UPDATE") is None:
        seed = seed.with_region("SLOW_UPDATE", "")
    if optimizer.use_skill_aware_reflection and seed.region("APPENDIX") is None:
        seed = seed.with_region("APPENDIX", "")
    return seed


def store_seed(run: TrainingRun, init: NamedSkill, seed: SkillDocument) -> None:
    """Store version 0 (`init` with this run's regions) and the origins of its lines."""
    moment = run.timeline[0].name
    lines = seed_lines(seed, moment)
    if init.version:
        lines = continue_origins(init.document, init.lines, init.run, seed, moment)
    run.store.put_text(run.keys.skill(0), seed.text)
    run.store.put_model(run.keys.line_origins(0), LinesOfSkill(lines=lines))


def seed_plan(run: TrainingRun) -> list[JsonObject]:
    return store_plan(run, run.timeline[0], "seed", _chunks(run, "seed", Split.VAL, [0]))


def seed_test_plan(run: TrainingRun) -> list[JsonObject]:
    """Plan the seed's rollouts on the test split, in parallel to the training.

    With a budget they run at the end, because parallel tasks would divide the remaining budget.
    """
    now = run.config.evaluation.eval_test and not run.config.budget.is_limited
    chunks = _chunks(run, "test", Split.TEST, [0]) if now else []
    return store_plan(run, run.timeline[0], "test", chunks)


def start(run: TrainingRun) -> RunState:
    """Turn the seed's evaluation into the first step's state; raise DataError if too few items have a score."""
    moment, seed = run.timeline[0], run.skill(0)
    evaluation = measured(run, Split.VAL, seed)
    rules, advice = run.config.evaluation, "clear score_seed and all tasks after it to retry these"
    require_coverage(evaluation, rules, "the seed skill on the selection split", advice)
    state = seed_state(moment, Measured(version=0, sha256=seed.sha256, evaluation=evaluation))
    log.info("seed skill: %.4f on %d items", evaluation.gate_mean(rules), evaluation.size)
    # Failed items may have scores now, which earlier steps didn't see.
    run.commit(moment, state)
    return state


def last_plan(run: TrainingRun) -> list[JsonObject]:
    """Plan the last skill's rollouts on the selection split, if its coverage is too low."""
    moment = run.timeline[-1]
    state = run.state_before(moment)
    chunks = [] if _is_measured(run, state) else _chunks(run, "final", Split.VAL, [state.current.version])
    return store_plan(run, moment, "final", chunks)


def finish(run: TrainingRun) -> list[JsonObject]:
    """Compare the last skill with the best one; return the test's chunks, equal texts once.

    A stopped run isn't tested, because its budget is used up.
    """
    moment, rules = run.timeline[-1], run.config.evaluation
    state = run.state_before(moment)
    if _is_measured(run, state):
        final = state.model_copy(update={"moment": moment.name})
    else:
        last = state.current.model_copy(
            update={"evaluation": measured(run, Split.VAL, run.skill(state.current.version)), "has_new_notes": False}
        )
        # Compare the means only: a policy would need fresh rollouts.
        by_mean = rules.model_copy(update={"gate_policy": "strict", "gate_protected_items": ()})
        best = state.best.evaluation
        skills = (run.skill(last.version), run.skill(state.best.version)) if rules.use_semantic_density else None
        decision = decide(last.evaluation, best, best, by_mean, skills=skills)
        final = compete(state, moment, last, decision)
        run.store.put_model(run.keys.moment(moment).gate, decision)
        log.info("last skill against best: %s, %s", decision.action, decision.reason)
    run.commit(moment, final)
    return store_plan(run, moment, "test", [] if final.stopped else _test_chunks(run, final))


def compete(state: RunState, moment: Moment, last: Measured, decision: GateDecision) -> RunState:
    best = last if decision.action is Action.ACCEPT_NEW_BEST else state.best
    return state.model_copy(update={"moment": moment.name, "current": last, "best": best})


def tested_versions(run: TrainingRun, final: RunState) -> dict[str, int]:
    """Return the tested versions by their names in the report."""
    versions = {"seed": 0}
    if run.config.evaluation.eval_test == "each_epoch":
        ends = {moment.epoch: moment for moment in run.timeline[1:-1]}
        versions |= {f"epoch {epoch}": run.state(moment).current.version for epoch, moment in ends.items()}
    return {**versions, "best": final.best.version, "last": final.current.version}


def _is_measured(run: TrainingRun, state: RunState) -> bool:
    known = not state.current.has_new_notes or bool(state.stopped)
    return known and covers(state.current.evaluation, run.config.evaluation)


def _chunks(run: TrainingRun, stage: PlanKind, split: Split, versions: Iterable[int]) -> list[Chunk]:
    items, skills = ids(run.item_refs(split)), [run.keys.skill(version) for version in versions]
    return chunks_of(run.config, stage, skills, split, items, range(run.config.evaluation.samples))


def _test_chunks(run: TrainingRun, final: RunState) -> list[Chunk]:
    """Return the test's chunks, without a seed that has its own plan; equal texts share rollouts."""
    if not run.config.evaluation.eval_test:
        return []
    texts = {run.skill(version).sha256: version for version in tested_versions(run, final).values()}
    if any(chunk.item_ids for chunk in stored_chunks(run, run.timeline[0], "test")):
        texts.pop(run.skill(0).sha256)
    return _chunks(run, "test", Split.TEST, texts.values())
