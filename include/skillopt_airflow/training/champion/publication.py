"""Publishing the best skill of a run: compared with the champion where nothing was selected, then made it."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.gate.measured_score import require_coverage
from skillopt_airflow.core.gate.run_gates import (
    Look,
    Question,
    decide_publication,
    deciding_items,
    held_out_items,
    level_at,
    marks_of,
    publishing_rules,
    why_unpassable,
)
from skillopt_airflow.core.run.history import Publication
from skillopt_airflow.core.run.state import Measured, RunState
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.provenance import LinesOfSkill
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.text import flaw_of_text
from skillopt_airflow.core.values.types import ItemRef, JsonObject, Split, canonical_json, items_fingerprint, sha256
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.training.prepare.data_checks import check_measured
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import unaffordable

if TYPE_CHECKING:
    from skillopt_airflow.store.artifacts import ArtifactStore, Provenance, PublishedScore, SplitScores

log = logging.getLogger(__name__)


class PublishContest(Document):
    """The two competitors, fixed when the first task asked for this candidate."""

    withheld: str = ""
    """Reason why the run has nothing to publish, or empty."""
    champion: Alias | None = None
    """The present champion; None if there is none, and the seed skill is the one to beat."""
    split: Split = Split.TEST
    rules: PublishingGroup = PublishingGroup()
    look: Look | None = None
    """The comparison as the ledger has it; None if there is nothing to publish."""
    overrides: JsonObject = Field(default_factory=dict)
    """Those of `RunRef`, such as another target."""

    @property
    def draws(self) -> range:
        return range(self.rules.draws)

    @property
    def rival(self) -> str:
        return "the seed skill" if self.champion is None else f"champion {self.champion.version}"


def plan_publication(
    run: TrainingRun, artifacts: "ArtifactStore", name: str, rules: PublishingGroup
) -> list[JsonObject]:
    """Settle who competes; return the chunks of both skills, none if there is nothing to publish."""
    keys, moment = run.keys.publication(name), run.timeline[-1]
    best = run.state(moment).best
    contest = run.store.find_model(keys.contest, PublishContest)
    # A part of the training that was cleared may have ended otherwise since.
    if contest is None or contest.look is None or contest.look.question.candidate != best.sha256:
        contest = _contest(run, artifacts, name, rules)
        run.store.put_model(keys.contest, contest)
    if contest.withheld:
        log.info("nothing to publish: %s", contest.withheld)
        return store_plan(run, moment, f"publish-{name}", [])
    log.info("%s of the %s split", contest.look, contest.split)
    skills, items = (run.keys.skill(best.version), keys.rival_skill), ids(run.item_refs(contest.split))
    chunks = chunks_of(run.config, "publish", skills, contest.split, items, contest.draws)
    return store_plan(run, moment, f"publish-{name}", chunks, if_missing=True)


def _contest(run: TrainingRun, artifacts: "ArtifactStore", name: str, rules: PublishingGroup) -> PublishContest:
    """Settle the rival, why nothing is published, or else the look; the rival's text is stored."""
    final, champion = run.state(run.timeline[-1]), artifacts.champion.read()
    rival = run.skill(0) if champion is None else SkillDocument(artifacts.read(champion.version).skill)
    run.store.put_text(run.keys.publication(name).rival_skill, rival.text)
    candidate, evaluation = run.skill(final.best.version), run.config.evaluation
    contest = PublishContest(champion=champion, split=run.publish_split, rules=rules, overrides=run.ref.overrides)
    if withheld := _nothing_new(final, champion, candidate):
        return contest.model_copy(update={"withheld": withheld})
    split, every = contest.split, run.item_refs(contest.split)
    usable, items = [item for item in every if not item.unusable], deciding_items(split, every)
    missing = sum(
        len(usable) - sum(found.status.scored for found in run.results(split, skill, draw, usable).values())
        for skill in (candidate, rival)
        for draw in contest.draws
    )
    if too_dear := unaffordable(run, missing):
        advice = "publish it with a larger one in the overrides"
        withheld = f"the budget has no room for publishing: {too_dear}; {advice}"
        return contest.model_copy(update={"withheld": withheld})
    question = Question(
        candidate=candidate.sha256,
        rival=rival.sha256,
        draws=rules.draws,
        metric=evaluation.gate_metric,
        policy=rules.gate_policy,
        alpha=rules.gate_alpha,
        settings=_settings(run, split, candidate, items),
    )
    # Rollouts that are not stored would be made again, which is another draw of luck.
    stored = missing <= (1 - evaluation.min_coverage) * 2 * len(items) * rules.draws
    look = artifacts.looks.enter(_marks(run, split), question, split, run.ref.run, name, stored=stored)
    return contest.model_copy(update={"look": look, "withheld": _hopeless(evaluation, items, rules, look)})


def _nothing_new(final: RunState, champion: Alias | None, candidate: SkillDocument) -> str:
    """Return why a run has no skill to publish, or nothing."""
    if final.stopped:
        return f"the run was stopped: {final.stopped}"
    if final.best.version == 0:
        return "the best skill is the one that the run began with"
    if champion is not None and champion.sha256 == candidate.sha256:
        return f"the best skill is the champion already, {champion.version}"
    flaw = flaw_of_text(candidate.text)
    return f"the best skill {flaw}" if flaw else ""


def _settings(run: TrainingRun, split: Split, candidate: SkillDocument, items: Sequence[ItemRef]) -> str:
    """Return a hash of what makes rollouts new: with another temperature, the same skills are another draw of luck."""
    looked_at = items_fingerprint(item.fingerprint for item in items)
    key, rules = run.rollout_key(split, candidate, 0), run.config.evaluation
    weight = rules.gate_mixed_weight if rules.gate_metric == "mixed" else None
    return sha256(canonical_json([looked_at, key.harness, key.settings_sha256, key.image, weight]))[:16]


def _hopeless(evaluation: EvaluationGroup, items: Sequence[ItemRef], rules: PublishingGroup, look: Look) -> str:
    """Return why no result on the items could pass the gate, so that nothing is rolled out for it, or nothing."""
    at_level = publishing_rules(evaluation, rules, look.number)
    if not (problem := why_unpassable(at_level, [item.group for item in items])):
        return ""
    return (
        f"{look}: at level {look.level:.2g} {rules.gate_policy} could accept nothing, since they {problem}; "
        "give the next training other items, or choose another policy"
    )


def _marks(run: TrainingRun, split: Split) -> tuple[str, ...]:
    return marks_of(deciding_items(split, run.items(split)))


def looks_at(run: TrainingRun, artifacts: "ArtifactStore", split: Split) -> int:
    """Return how many comparisons on a split of the run there were, to publish for its target."""
    return artifacts.looks.next_number(_marks(run, split)) - 1


def gate_publication(run: TrainingRun, name: str) -> str:
    """Decide whether the candidate may become the champion; return why not, or nothing.

    Raises:
        DataError: rows cannot be concluded from, or too few items have a score under one of the two; or the training
            has ended with another best skill since.
    """
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    if contest.withheld:
        return contest.withheld
    if contest.look is None:
        raise DataError("nothing to publish was planned")
    look, best = contest.look, _planned(run, contest)
    skills = {"candidate": run.skill(best.version), "rival": run.document(keys.rival_skill)}
    check_measured(run, contest.split, skills, contest.draws)
    candidate, rival = (_covered(run, name, skill, contest) for name, skill in skills.items())
    decision = decide_publication(candidate, rival, run.config.evaluation, contest.rules, look)
    run.store.put_model(keys.gate, decision)
    log.info("publish gate against %s: %s, %s", contest.rival, decision.action, decision.reason)
    if decision.action.accepted:
        return ""
    return f"the publish gate says {decision.action} against {contest.rival}: {decision.reason}"


def _planned(run: TrainingRun, contest: PublishContest) -> Measured:
    """Return the candidate of a publication, as it was planned.

    Raises:
        DataError: the training has another best skill since, as after a part of it was cleared.
    """
    best = run.state(run.timeline[-1]).best
    if contest.look is not None and contest.look.question.candidate != best.sha256:
        raise DataError(
            "the training has ended with another best skill since this publication was planned: clear "
            "plan_publication, with all that comes after it, and it is compared and approved anew"
        )
    return best


def _covered(run: TrainingRun, who: str, skill: SkillDocument, contest: PublishContest) -> Evaluation:
    evaluation = measured(
        run, contest.split, skill, contest.draws, deciding_items(contest.split, run.item_refs(contest.split))
    )
    advice = "clear the task measure and what follows it to try these again"
    require_coverage(
        evaluation, run.config.evaluation, f"publishing, the {who} skill on the {contest.split} split", advice
    )
    return evaluation


def publish_best(run: TrainingRun, artifacts: "ArtifactStore", name: str) -> Publication:
    """Publish the best skill, which passed the publish gate.

    Raises:
        Conflict: another publisher moved the champion since the two were compared.
        DataError: the training has ended with another best skill since, or rows that were looked at are gone.
    """
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    decision = run.store.get_model(keys.gate, GateDecision)
    best = _planned(run, contest)
    assert contest.look is not None
    published = artifacts.publish(
        run.skill(best.version).text,
        _provenance(run, best, contest, decision, name),
        contest.champion,
        f"{decision.action} against {contest.rival}: {decision.reason}",
        run.config.publishing.description,
    )
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=artifacts.address(published.key),
        created=published.created,
        split=contest.split,
        look=contest.look.number,
    )


def _provenance(
    run: TrainingRun, best: Measured, contest: PublishContest, decision: GateDecision, name: str
) -> "Provenance":
    from skillopt_airflow.store.artifacts import Provenance, PublishGate
    from skillopt_airflow.store.data.data_manifest import DataManifest

    record, config, look = run.record, run.config, contest.look
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    gates = [
        (moment.name, run.store.get_model(run.keys.moment(moment).gate, GateDecision)) for moment in run.timeline[1:-1]
    ]
    skills = {"candidate": run.skill(best.version), "rival": run.document(run.keys.publication(name).rival_skill)}
    score, rival_score = (_published(run, _covered(run, who, skill, contest)) for who, skill in skills.items())
    passed = None
    # While somebody thought about it, old rows may have been removed.
    if look is not None and score is not None and rival_score is not None:
        passed = PublishGate(
            split=contest.split,
            look=look.number,
            level=level_at(look),
            score=score,
            rival=contest.rival,
            rival_score=rival_score,
        )
    return Provenance(
        publish_gate=passed,
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
            {"moment": name} | decision.model_dump(mode="json") for name, decision in [*gates, ("publish", decision)]
        ),
        lines=run.store.get_model(run.keys.line_origins(best.version), LinesOfSkill).lines,
    )


def _scores(run: TrainingRun, skill: Measured, contest: PublishContest) -> "SplitScores":
    """Return what was measured of a skill, by the model that it is published for."""
    from skillopt_airflow.store.artifacts import SplitScores

    evaluation = measured(run, contest.split, run.skill(skill.version), contest.draws)
    scores = {contest.split.value: _published(run, evaluation)}
    if not run.for_another_model:
        # A contest takes more draws, which only those have that took part in it.
        if run.config.evaluation.eval_test and scores.get("test") is None:
            scores["test"] = _published(run, measured(run, Split.TEST, run.skill(skill.version)))
        scores["val"] = _published(run, skill.evaluation)
    scores["promised"] = scores.get("test")
    if contest.split is Split.TEST:
        held_out = held_out_items(run.item_refs(Split.TEST))
        found = measured(run, Split.TEST, run.skill(skill.version), contest.draws, held_out)
        scores["promised"] = _published(run, found)
    return SplitScores.model_validate(scores)


def _published(run: TrainingRun, evaluation: Evaluation) -> "PublishedScore | None":
    from skillopt_airflow.store.artifacts import PublishedScore

    return PublishedScore.of(evaluation, run.config.evaluation) if evaluation.scores else None


def as_published(run: TrainingRun, name: str) -> TrainingRun:
    """Return a run under the knobs of one of its publications, which may be for another target model."""
    contest = run.store.get_model(run.keys.publication(name).contest, PublishContest)
    return TrainingRun(run.ref.model_copy(update={"overrides": contest.overrides}), run.connections, run.store)
