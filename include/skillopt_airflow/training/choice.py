"""The proposals of a step: where each is stored, which are measured, and which of them the gate decides on."""

from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.contenders import Contender, choose
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.item_scores import Evaluation, covers
from skillopt_airflow.core.paired import paired
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.training.evaluation import cut_or_measured
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.store.keys import MomentKeys


class Proposal(NamedTuple):
    """One of the candidates of a moment."""

    number: int
    """From 1."""
    keys: "MomentKeys"
    """Keys of what it is made of."""


class Choice(NamedTuple):
    """The outcome of the choice among several candidates, empty where a moment has one."""

    contenders: tuple[Contender, ...] = ()
    others: tuple[Evaluation, ...] = ()
    """Evaluations of those that were measured and not chosen."""


def proposals(run: TrainingRun, moment: Moment) -> list[Proposal]:
    """Return the proposals of a moment; where a step has several, each has a folder of its own."""
    keys = run.keys.moment(moment)
    if moment.kind != "step" or run.config.train.proposals == 1:
        return [Proposal(1, keys)]
    return [Proposal(number, keys.proposal(number)) for number in range(1, run.config.train.proposals + 1)]


def to_measure(run: TrainingRun, moment: Moment) -> list[Proposal]:
    """Return the proposals whose candidates differ from the current skill; of those with one text the first."""
    known = {run.state_before(moment).current.sha256}
    found: list[Proposal] = []
    for proposal in proposals(run, moment):
        text = run.document(proposal.keys.candidate_skill).sha256
        if text not in known:
            known.add(text)
            found.append(proposal)
    return found


def settle(run: TrainingRun, moment: Moment) -> Choice:
    """Choose among the candidates of a moment, and store what belongs to the best one as the moment's own."""
    if len(proposals(run, moment)) == 1:
        return Choice()
    before = run.state_before(moment)
    known = {before.current.sha256: "equal to the current skill"}
    found: list[Contender] = []
    evaluations: dict[int, Evaluation] = {}
    for number, keys in proposals(run, moment):
        candidate = run.document(keys.candidate_skill)
        of_text = {"proposal": number, "sha256": candidate.sha256, "characters": len(candidate.text)}
        if candidate.sha256 in known:
            standing: JsonObject = {"standing": "nothing new", "reason": known[candidate.sha256]}
        else:
            known[candidate.sha256] = f"equal to proposal {number}"
            evaluations[number], bound = cut_or_measured(run, moment, before, candidate)
            standing = _standing(run, before, evaluations[number], bound)
        found.append(Contender.model_validate(of_text | standing))
    contenders = choose(found)
    best = next(one for one in contenders if one.chosen)
    _adopt(run, moment, best.proposal)
    return Choice(contenders, tuple(evaluations[number] for number in evaluations if number != best.proposal))


def _standing(run: TrainingRun, before: RunState, evaluation: Evaluation, bound: float | None) -> JsonObject:
    rules, current = run.config.evaluation, before.current.evaluation
    if bound is not None:
        return {"standing": "rejected early", "bound": bound, "current": paired(current, current, rules).score}
    if not covers(evaluation, rules):
        return {"standing": "too few scores"}
    table = paired(evaluation, current, rules)
    return {"standing": "measured", "score": table.score, "current": table.other_score}


def _adopt(run: TrainingRun, moment: Moment, number: int) -> None:
    """Store the documents of a proposal under the keys of its moment, where everything else looks for them."""
    mine, theirs = run.keys.moment(moment), run.keys.moment(moment).proposal(number)
    for key, copy in zip(theirs.of_candidate, mine.of_candidate, strict=True):
        try:
            run.store.put_bytes(copy, run.store.get_bytes(key))
        except ObjectMissing:
            # Not every proposal has a learning rate of the optimizer's, or notes; another was perhaps the best before.
            run.store.delete(copy)
