"""The publication of a run's best skill: comparison with the champion on held-out items, then publishing."""

import logging
from collections.abc import Sequence

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
from skillopt_airflow.store.artifacts import ArtifactStore, Provenance, PublishedScore, PublishGate, SplitScores
from skillopt_airflow.store.data.data_manifest import DataManifest
from skillopt_airflow.training.prepare.data_checks import check_measured
from skillopt_airflow.training.rollouts.evaluation import measured
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import budget_shortfall

log = logging.getLogger(__name__)


class PublicationPlan(Document):
    """A planned comparison with the champion, fixed when a candidate is first planned."""

    withheld: str = ""
    """Reason to publish nothing, or empty."""
    champion: Alias | None = None
    """The current champion; None if there is none, so that the seed skill is the rival."""
    split: Split = Split.TEST
    rules: PublishingGroup = PublishingGroup()
    look: Look | None = None
    """The comparison's entry in the ledger; None if there is nothing to publish."""
    overrides: JsonObject = Field(default_factory=dict)
    """Overrides of the `RunRef`, such as another target."""

    @property
    def samples(self) -> range:
        return range(self.rules.samples)

    @property
    def rival(self) -> str:
        return "the seed skill" if self.champion is None else f"champion {self.champion.version}"


def plan_publication(run: TrainingRun, artifacts: ArtifactStore, name: str, rules: PublishingGroup) -> list[JsonObject]:
    """Plan the comparison; return the chunks of both skills, none if there is nothing to publish."""
    keys, moment = run.keys.publication(name), run.timeline[-1]
    best = run.state(moment).best
    plan = run.store.find_model(keys.contest, PublicationPlan)
    # A cleared part of the training may have ended differently since.
    if plan is None or plan.look is None or plan.look.question.candidate != best.sha256:
        plan = _new_plan(run, artifacts, name, rules)
        run.store.put_model(keys.contest, plan)
    if plan.withheld:
        log.info("nothing to publish: %s", plan.withheld)
        return store_plan(run, moment, f"publish-{name}", [])
    log.info("%s of the %s split", plan.look, plan.split)
    skills, items = (run.keys.skill(best.version), keys.rival_skill), ids(run.item_refs(plan.split))
    chunks = chunks_of(run.config, "publish", skills, plan.split, items, plan.samples)
    return store_plan(run, moment, f"publish-{name}", chunks, if_missing=True)


def _new_plan(run: TrainingRun, artifacts: ArtifactStore, name: str, rules: PublishingGroup) -> PublicationPlan:
    """Return the rival, and the look or the reason to publish nothing; store the rival's text."""
    final, champion = run.state(run.timeline[-1]), artifacts.champion.read()
    rival = run.skill(0) if champion is None else SkillDocument(artifacts.read(champion.version).skill)
    run.store.put_text(run.keys.publication(name).rival_skill, rival.text)
    candidate, evaluation = run.skill(final.best.version), run.config.evaluation
    plan = PublicationPlan(champion=champion, split=run.publish_split, rules=rules, overrides=run.ref.overrides)
    if withheld := _nothing_new(final, champion, candidate):
        return plan.model_copy(update={"withheld": withheld})
    split, every = plan.split, run.item_refs(plan.split)
    usable, items = [item for item in every if not item.unusable], deciding_items(split, every)
    missing = sum(
        len(usable) - sum(found.status.scored for found in run.results(split, skill, sample, usable).values())
        for skill in (candidate, rival)
        for sample in plan.samples
    )
    if shortfall := budget_shortfall(run, missing):
        advice = "publish it with a larger one in the overrides"
        withheld = f"the budget has no room for publishing: {shortfall}; {advice}"
        return plan.model_copy(update={"withheld": withheld})
    question = Question(
        candidate=candidate.sha256,
        rival=rival.sha256,
        samples=rules.samples,
        metric=evaluation.gate_metric,
        policy=rules.gate_policy,
        alpha=rules.gate_alpha,
        settings=_settings(run, split, candidate, items),
    )
    # Missing rollouts would be made again, which is another random sample.
    stored = missing <= (1 - evaluation.min_coverage) * 2 * len(items) * rules.samples
    look = artifacts.looks.enter(_marks(run, split), question, split, run.ref.run, name, stored=stored)
    return plan.model_copy(update={"look": look, "withheld": _hopeless(evaluation, items, rules, look)})


def _nothing_new(final: RunState, champion: Alias | None, candidate: SkillDocument) -> str:
    """Return why a run has no skill to publish, or ""."""
    if final.stopped:
        return f"the run was stopped: {final.stopped}"
    if final.best.version == 0:
        return "the best skill is the one that the run began with"
    if champion is not None and champion.sha256 == candidate.sha256:
        return f"the best skill is the champion already, {champion.version}"
    flaw = flaw_of_text(candidate.text)
    return f"the best skill {flaw}" if flaw else ""


def _settings(run: TrainingRun, split: Split, candidate: SkillDocument, items: Sequence[ItemRef]) -> str:
    """Return a hash of the settings that make rollouts a new random sample."""
    looked_at = items_fingerprint(item.fingerprint for item in items)
    key, rules = run.rollout_key(split, candidate, 0), run.config.evaluation
    weight = rules.gate_mixed_weight if rules.gate_metric == "mixed" else None
    return sha256(canonical_json([looked_at, key.harness, key.settings_sha256, key.image, weight]))[:16]


def _hopeless(evaluation: EvaluationGroup, items: Sequence[ItemRef], rules: PublishingGroup, look: Look) -> str:
    """Return why no result on the items can pass the gate, or ""."""
    at_level = publishing_rules(evaluation, rules, look.number)
    if not (problem := why_unpassable(at_level, [item.group for item in items])):
        return ""
    return (
        f"{look}: at level {look.level:.2g} {rules.gate_policy} could accept nothing, since they {problem}; "
        "give the next training other items, or choose another policy"
    )


def _marks(run: TrainingRun, split: Split) -> tuple[str, ...]:
    return marks_of(deciding_items(split, run.items(split)))


def count_looks(run: TrainingRun, artifacts: ArtifactStore, split: Split) -> int:
    """Return the number of publication tests on this split so far, for its target."""
    return artifacts.looks.next_number(_marks(run, split)) - 1


def gate_publication(run: TrainingRun, name: str) -> str:
    """Decide whether the candidate may become the champion; return why not, or "".

    Raises:
        DataError: rows fail expectations, too few items have a score, or the training now has another best skill.
    """
    keys = run.keys.publication(name)
    plan = run.store.get_model(keys.contest, PublicationPlan)
    if plan.withheld:
        return plan.withheld
    if plan.look is None:
        raise DataError("nothing to publish was planned")
    look, best = plan.look, _planned_candidate(run, plan)
    skills = {"candidate": run.skill(best.version), "rival": run.document(keys.rival_skill)}
    check_measured(run, plan.split, skills, plan.samples)
    candidate, rival = (_covered_evaluation(run, name, skill, plan) for name, skill in skills.items())
    decision = decide_publication(candidate, rival, run.config.evaluation, plan.rules, look)
    run.store.put_model(keys.gate, decision)
    log.info("publish gate against %s: %s, %s", plan.rival, decision.action, decision.reason)
    if decision.action.accepted:
        return ""
    return f"the publish gate says {decision.action} against {plan.rival}: {decision.reason}"


def _planned_candidate(run: TrainingRun, plan: PublicationPlan) -> Measured:
    """Return the planned candidate; raise DataError if the training, cleared meanwhile, has another best skill."""
    best = run.state(run.timeline[-1]).best
    if plan.look is not None and plan.look.question.candidate != best.sha256:
        raise DataError(
            "the training has another best skill since this publication was planned. Clear "
            "plan_publication and all tasks after it to compare and approve it again"
        )
    return best


def _covered_evaluation(run: TrainingRun, who: str, skill: SkillDocument, plan: PublicationPlan) -> Evaluation:
    evaluation = measured(run, plan.split, skill, plan.samples, deciding_items(plan.split, run.item_refs(plan.split)))
    advice = "clear the task measure and all tasks after it to retry these"
    require_coverage(
        evaluation, run.config.evaluation, f"publishing, the {who} skill on the {plan.split} split", advice
    )
    return evaluation


def publish_best(run: TrainingRun, artifacts: ArtifactStore, name: str) -> Publication:
    """Publish the best skill, which passed the publish gate.

    Raises:
        Conflict: the champion moved since the comparison.
        DataError: the training now has another best skill, or compared rows are gone.
    """
    keys = run.keys.publication(name)
    plan = run.store.get_model(keys.contest, PublicationPlan)
    decision = run.store.get_model(keys.gate, GateDecision)
    best = _planned_candidate(run, plan)
    assert plan.look is not None
    published = artifacts.publish(
        run.skill(best.version).text,
        _provenance(run, best, plan, decision, name),
        plan.champion,
        f"{decision.action} against {plan.rival}: {decision.reason}",
        run.config.publishing.description,
    )
    log.info("%s %s", "published" if published.created else "already the champion:", published.version)
    return Publication(
        version=published.version,
        sha256=published.sha256,
        key=artifacts.address(published.key),
        created=published.created,
        split=plan.split,
        look=plan.look.number,
    )


def _provenance(
    run: TrainingRun, best: Measured, plan: PublicationPlan, decision: GateDecision, name: str
) -> Provenance:
    record, config, look = run.record, run.config, plan.look
    manifest = run.store.get_model(run.keys.data_manifest, DataManifest)
    gates = [
        (moment.name, run.store.get_model(run.keys.moment(moment).gate, GateDecision)) for moment in run.timeline[1:-1]
    ]
    skills = {"candidate": run.skill(best.version), "rival": run.document(run.keys.publication(name).rival_skill)}
    score, rival_score = (_published(run, _covered_evaluation(run, who, skill, plan)) for who, skill in skills.items())
    passed = None
    # Old rows may have been removed while the approval was pending.
    if look is not None and score is not None and rival_score is not None:
        passed = PublishGate(
            split=plan.split,
            look=look.number,
            level=level_at(look),
            score=score,
            rival=plan.rival,
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
        seed_scores=_scores(run, run.state(run.timeline[0]).best, plan),
        best_scores=_scores(run, best, plan),
        gate_history=tuple(
            {"moment": name} | decision.model_dump(mode="json") for name, decision in [*gates, ("publish", decision)]
        ),
        lines=run.store.get_model(run.keys.line_origins(best.version), LinesOfSkill).lines,
    )


def _scores(run: TrainingRun, skill: Measured, plan: PublicationPlan) -> SplitScores:
    """Return a skill's scores under the publication's target model."""
    evaluation = measured(run, plan.split, run.skill(skill.version), plan.samples)
    scores = {plan.split.value: _published(run, evaluation)}
    if not run.for_another_model:
        # The comparison may use more samples, which only its two skills have.
        if run.config.evaluation.eval_test and scores.get("test") is None:
            scores["test"] = _published(run, measured(run, Split.TEST, run.skill(skill.version)))
        scores["val"] = _published(run, skill.evaluation)
    scores["promised"] = scores.get("test")
    if plan.split is Split.TEST:
        held_out = held_out_items(run.item_refs(Split.TEST))
        found = measured(run, Split.TEST, run.skill(skill.version), plan.samples, held_out)
        scores["promised"] = _published(run, found)
    return SplitScores.model_validate(scores)


def _published(run: TrainingRun, evaluation: Evaluation) -> PublishedScore | None:
    return PublishedScore.of(evaluation, run.config.evaluation) if evaluation.scores else None


def as_published(run: TrainingRun, name: str) -> TrainingRun:
    """Return a run with a publication's overrides, such as another target model."""
    plan = run.store.get_model(run.keys.publication(name).contest, PublicationPlan)
    return TrainingRun(run.ref.model_copy(update={"overrides": plan.overrides}), run.connections, run.store)
