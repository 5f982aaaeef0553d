"""Publishing the best skill of a run: measured afresh against the present champion, gated, then made the champion."""

import logging
from typing import TYPE_CHECKING

from skillopt_airflow.core.config import PublishingGroup
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.gate import GateDecision, decide
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.measured_score import require_coverage
from skillopt_airflow.core.provenance import LinesOfSkill
from skillopt_airflow.core.run_gates import publishing_rules
from skillopt_airflow.core.run_history import Publication
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import Measured
from skillopt_airflow.core.types import JsonObject, Split, sha256
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.training.data_checks import check_measured
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.spending import unaffordable

if TYPE_CHECKING:
    from skillopt_airflow.store.artifacts import ArtifactStore, Provenance, PublishedScore, SplitScores

log = logging.getLogger(__name__)

FIRST_FRESH_DRAW = 1000
"""Above every draw that a training may use."""
MOST_DRAWS = 100
"""Limit of a publication; each has as many numbers of its own."""
PUBLICATIONS = 100_000
"""Among so many places the hash of a publication's name picks one."""


class PublishContest(Document):
    """The two competitors, fixed when the first task asked."""

    withheld: str = ""
    """Reason why the run has nothing to publish, or empty."""
    champion: Alias | None = None
    """The present champion; None if there is none, and the seed skill is the one to beat."""
    rules: PublishingGroup = PublishingGroup()
    first_draw: int = FIRST_FRESH_DRAW
    """The publication's own: rollouts of an earlier one flatter the champion that passed the gate by them."""

    @property
    def draws(self) -> range:
        """Return what every task of the publication rolls out and looks at."""
        return range(self.first_draw, self.first_draw + self.rules.draws)

    @property
    def rival(self) -> str:
        """The one to beat, for people."""
        return "the seed skill" if self.champion is None else f"champion {self.champion.version}"


def plan_publication(
    run: TrainingRun, artifacts: "ArtifactStore", name: str, rules: PublishingGroup
) -> list[JsonObject]:
    """Settle who competes; return the chunks of both skills on fresh draws, none if there is nothing to publish."""
    keys, moment = run.keys.publication(name), run.timeline[-1]
    try:
        contest = run.store.get_model(keys.contest, PublishContest)
    except ObjectMissing:
        contest = _contest(run, artifacts, name, rules)
        seed_or_champion = run.skill(0).text
        if contest.champion is not None:
            seed_or_champion = artifacts.read(contest.champion.version).skill
        run.store.put_text(keys.rival_skill, seed_or_champion)
        run.store.put_model(keys.contest, contest)
    if contest.withheld:
        log.info("nothing to publish: %s", contest.withheld)
        return store_plan(run, moment, f"publish-{name}", [])
    best = run.keys.skill(run.state(moment).best.version)
    skills, items = (best, keys.rival_skill), ids(run.item_refs(Split.VAL))
    chunks = chunks_of(run.config, "publish", skills, Split.VAL, items, contest.draws)
    return store_plan(run, moment, f"publish-{name}", chunks)


def gate_publication(run: TrainingRun, name: str) -> str:
    """Decide whether the candidate may become the champion; return why not, or nothing.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score under one of the two.
    """
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    if contest.withheld:
        return contest.withheld
    skills = {
        "candidate": run.skill(run.state(run.timeline[-1]).best.version),
        "rival": run.document(keys.rival_skill),
    }
    run.merge_parts(Split.VAL, skills.values(), contest.draws)
    check_measured(run, Split.VAL, skills, contest.draws)
    candidate, rival = (_covered(run, name, skill, contest) for name, skill in skills.items())
    decision = decide(candidate, rival, rival, publishing_rules(run.config.evaluation, contest.rules))
    run.store.put_model(keys.gate, decision)
    log.info("publish gate against %s: %s, %s", contest.rival, decision.action, decision.reason)
    if decision.action.accepted:
        return ""
    return f"the publish gate says {decision.action} against {contest.rival}: {decision.reason}"


def publish_best(run: TrainingRun, artifacts: "ArtifactStore", name: str) -> Publication:
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
        f"{decision.action} against {contest.rival}: {decision.reason}",
    )
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=artifacts.address(published.key),
        created=published.created,
    )


def fresh(run: TrainingRun, skill: SkillDocument, contest: PublishContest) -> Evaluation:
    """Return a skill's scores on the publication's own draws of the selection split."""
    return measured(run, Split.VAL, skill, contest.draws)


def _covered(run: TrainingRun, name: str, skill: SkillDocument, contest: PublishContest) -> Evaluation:
    evaluation = fresh(run, skill, contest)
    advice = "clear the task measure and what follows it to try these again"
    require_coverage(evaluation, run.config.evaluation, f"publishing, the {name} skill on fresh rollouts", advice)
    return evaluation


def _contest(run: TrainingRun, artifacts: "ArtifactStore", name: str, rules: PublishingGroup) -> PublishContest:
    final, champion = run.state(run.timeline[-1]), artifacts.champion.read()
    withheld = ""
    if final.stopped:
        withheld = f"the run was stopped: {final.stopped}"
    elif final.best.version == 0:
        withheld = "no candidate was better than the seed skill"
    elif champion is not None and champion.sha256 == run.skill(final.best.version).sha256:
        withheld = f"the best skill is the champion already, {champion.version}"
    needed = 2 * len(run.item_refs(Split.VAL)) * rules.draws
    if not withheld and (too_dear := unaffordable(run, needed)):
        withheld = f"the budget has no room for publishing: {too_dear}; publish it with a larger one in the overrides"
    place = int(sha256(f"{run.ref.run}/{name}")[:12], 16) % PUBLICATIONS
    return PublishContest(
        withheld=withheld, champion=champion, rules=rules, first_draw=FIRST_FRESH_DRAW + place * MOST_DRAWS
    )


def _provenance(run: TrainingRun, best: Measured, contest: PublishContest, publish_gate: GateDecision) -> "Provenance":
    from skillopt_airflow.store.artifacts import Provenance
    from skillopt_airflow.store.data_manifest import DataManifest

    record, config = run.record, run.config
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    gates = [
        (moment.name, run.store.get_model(run.keys.moment(moment).gate, GateDecision)) for moment in run.timeline[1:-1]
    ]
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
        seed_scores=_scores(run, run.state(run.timeline[0]).best, contest),
        best_scores=_scores(run, best, contest),
        gate_history=tuple(
            {"moment": name} | decision.model_dump(mode="json")
            for name, decision in [*gates, ("publish", publish_gate)]
        ),
        lines=run.store.get_model(run.keys.line_origins(best.version), LinesOfSkill).lines,
    )


def _scores(run: TrainingRun, skill: Measured, contest: PublishContest) -> "SplitScores":
    """Return scores by fresh rollouts if there are some: a training's own flatter the skill that it chose by them."""
    from skillopt_airflow.store.artifacts import SplitScores

    document = run.skill(skill.version)
    val = _measured(run, fresh(run, document, contest))
    if run.for_another_model:
        # The training asked another model.
        return SplitScores(val=val, test=None)
    tested = measured(run, Split.TEST, document) if run.config.evaluation.eval_test else None
    return SplitScores(val=_measured(run, skill.evaluation) if val is None else val, test=_measured(run, tested))


def _measured(run: TrainingRun, evaluation: Evaluation | None) -> "PublishedScore | None":
    from skillopt_airflow.store.artifacts import PublishedScore

    if evaluation is None or not evaluation.scores:
        return None
    return PublishedScore.of(evaluation, run.config.evaluation)
