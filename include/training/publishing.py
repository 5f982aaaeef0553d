"""Publishing the best skill of a run: measured afresh against the present champion, gated, then made the champion."""

import logging
from typing import TYPE_CHECKING

from include.core.config import EvaluationGroup, PublishingGroup
from include.core.errors import ObjectMissing
from include.core.gate import GateDecision, decide
from include.core.paired import interval
from include.core.provenance import LinesOfSkill
from include.core.scoring import Evaluation, evaluation_of
from include.core.skill import SkillDocument
from include.core.state import Measured
from include.core.types import JsonObject, Split, Value
from include.store.aliases import Alias
from include.training.evaluation import measured
from include.training.rollouts import Chunk, chunks_of, ids, store_plan
from include.training.run import TrainingRun

if TYPE_CHECKING:
    from include.store.artifacts import ArtifactStore, MeasuredScore, Provenance, SplitScores
    from include.store.objects import ObjectStore

log = logging.getLogger(__name__)

FIRST_FRESH_DRAW = 1000
"""Above every draw that a training may use."""


class Publication(Value):
    """What a run published."""

    version: str
    sha256: str
    key: str
    """Address of best_skill.md."""
    created: bool
    """False if the same skill was the champion already."""


class PublishContest(Value):
    """Who competes, fixed when the first task asked."""

    withheld: str = ""
    """Why the run has nothing to publish, or empty."""
    champion: Alias | None = None
    """The present champion; None if there is none, and the seed skill is the one to beat."""
    rules: PublishingGroup = PublishingGroup()

    @property
    def rival(self) -> str:
        """The one to beat, for people."""
        return "the seed skill" if self.champion is None else f"champion {self.champion.version}"


def artifact_store(run: TrainingRun, store: "ObjectStore") -> "ArtifactStore":
    """The published skills of the run's benchmark and target; `store` is the artifact bucket."""
    from include.store.artifacts import ArtifactStore
    from include.store.keys import ArtifactKeys

    return ArtifactStore(
        store, ArtifactKeys(run.config.storage.prefix, run.ref.benchmark, str(run.config.model.target))
    )


def plan_publication(
    run: TrainingRun, artifacts: "ArtifactStore", name: str, rules: PublishingGroup
) -> list[JsonObject]:
    """Settle who competes; returns the chunks of both skills on fresh draws, none if there is nothing to publish."""
    keys, moment = run.keys.publication(name), run.timeline[-1]
    try:
        contest = run.store.get_model(keys.contest, PublishContest)
    except ObjectMissing:
        contest = _contest(run, artifacts, rules)
        seed_or_champion = run.skill(0).text
        if contest.champion is not None:
            seed_or_champion = artifacts.read(contest.champion.version).skill
        run.store.put_text(keys.rival_skill, seed_or_champion)
        run.store.put_model(keys.contest, contest)
    if contest.withheld:
        log.info("nothing to publish: %s", contest.withheld)
        return store_plan(run, moment, f"publish-{name}", [])
    best = run.keys.skill(run.state(moment).best.version)
    chunks = [chunk for skill in (best, keys.rival_skill) for chunk in _fresh_chunks(run, skill, contest.rules.draws)]
    return store_plan(run, moment, f"publish-{name}", chunks)


def gate_publication(run: TrainingRun, name: str) -> str:
    """Decide whether the candidate may become the champion; returns why not, or nothing."""
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    if contest.withheld:
        return contest.withheld
    candidate = fresh(run, run.skill(run.state(run.timeline[-1]).best.version), contest.rules.draws)
    rival = fresh(run, run.document(keys.rival_skill), contest.rules.draws)
    decision = decide(candidate, rival, rival, publish_rules(run, contest.rules))
    run.store.put_model(keys.gate, decision)
    log.info("publish gate against %s: %s, %s", contest.rival, decision.action, decision.reason)
    if decision.action.accepted:
        return ""
    return f"the publish gate says {decision.action} against {contest.rival}: {decision.reason}"


def publish_best(run: TrainingRun, artifacts: "ArtifactStore", name: str, reason: str = "") -> Publication:
    """Publish the best skill, which passed the publish gate.

    Raises:
        Conflict: another publisher moved the champion since the two were compared.
    """
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    decision = run.store.get_model(keys.gate, GateDecision)
    best = run.state(run.timeline[-1]).best
    published = artifacts.publish(
        run.skill(best.version).text,
        _provenance(run, best, contest, decision),
        contest.champion,
        reason or f"{decision.action} against {contest.rival}: {decision.reason}",
    )
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=artifacts.address(published.key),
        created=published.created,
    )


def fresh(run: TrainingRun, skill: SkillDocument, draws: int) -> Evaluation:
    """A skill on the draws of the selection split that no training uses."""
    items = run.items(Split.VAL)
    rollouts = [
        rollout for draw in _fresh_draws(draws) for rollout in run.stored(Split.VAL, skill, draw, items).values()
    ]
    return evaluation_of(ids(items), rollouts)


def publish_rules(run: TrainingRun, rules: PublishingGroup) -> EvaluationGroup:
    """The run's way to score, under the policy of publishing."""
    policy = {"use_gate": True, "gate_policy": rules.gate_policy, "gate_alpha": rules.gate_alpha}
    return run.config.evaluation.model_copy(update=policy)


def _contest(run: TrainingRun, artifacts: "ArtifactStore", rules: PublishingGroup) -> PublishContest:
    final, champion = run.state(run.timeline[-1]), artifacts.champion.read()
    withheld = ""
    if final.stopped:
        withheld = f"the run was stopped: {final.stopped}"
    elif final.best.version == 0:
        withheld = "no candidate was better than the seed skill"
    elif champion is not None and champion.sha256 == run.skill(final.best.version).sha256:
        withheld = f"the best skill is the champion already, {champion.version}"
    return PublishContest(withheld=withheld, champion=champion, rules=rules)


def _fresh_chunks(run: TrainingRun, skill: str, draws: int) -> list[Chunk]:
    items = ids(run.items(Split.VAL))
    return [chunk for draw in _fresh_draws(draws) for chunk in chunks_of(run, "publish", skill, Split.VAL, items, draw)]


def _fresh_draws(draws: int) -> range:
    return range(FIRST_FRESH_DRAW, FIRST_FRESH_DRAW + draws)


def _provenance(run: TrainingRun, best: Measured, contest: PublishContest, publish_gate: GateDecision) -> "Provenance":
    from include.store.artifacts import Provenance
    from include.store.manifest import DataManifest

    record, config = run.record, run.config
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    gates = [
        (moment.name, run.store.get_model(run.keys.moment(moment).gate, GateDecision)) for moment in run.timeline[1:-1]
    ]
    seed_scores, best_scores = (
        (_fresh_scores(run, 0, contest), _fresh_scores(run, best.version, contest))
        if run.ref.target
        else (_scores(run, run.state(run.timeline[0]).best), _scores(run, best))
    )
    return Provenance(
        run=record.run,
        config=config.model_dump(mode="json"),
        models={
            "target": str(config.model.target),
            "optimizer": str(config.model.optimizer),
            "trained_for": str(record.config.model.target),
        },
        harness=config.model.harness,
        data_fingerprints={split: part.fingerprint for split, part in manifest.splits.items()},
        seed_scores=seed_scores,
        best_scores=best_scores,
        gate_history=tuple(
            {"moment": name} | decision.model_dump(mode="json")
            for name, decision in [*gates, ("publish", publish_gate)]
        ),
        lines=run.store.get_model(run.keys.line_origins(best.version), LinesOfSkill).lines,
    )


def _scores(run: TrainingRun, skill: Measured) -> "SplitScores":
    from include.store.artifacts import SplitScores

    tested = measured(run, Split.TEST, run.skill(skill.version)) if run.config.evaluation.eval_test else None
    return SplitScores(val=_measured(run, skill.evaluation), test=_measured(run, tested))


def _fresh_scores(run: TrainingRun, version: int, contest: PublishContest) -> "SplitScores":
    """Under a target that the training never asked, there are the rollouts of the publish gate and no others."""
    from include.store.artifacts import SplitScores

    return SplitScores(val=_measured(run, fresh(run, run.skill(version), contest.rules.draws)), test=None)


def _measured(run: TrainingRun, evaluation: Evaluation | None) -> "MeasuredScore | None":
    from include.store.artifacts import MeasuredScore

    if evaluation is None or not evaluation.scores:
        return None
    low, high = interval(evaluation, run.config.evaluation)
    return MeasuredScore(
        hard=evaluation.mean("hard"), soft=evaluation.mean("soft"), items=len(evaluation.scores), low=low, high=high
    )
