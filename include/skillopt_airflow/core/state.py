"""The state of a training at a moment: all that the next one needs."""

import math

from pydantic import Field

from skillopt_airflow.core.buffer import StepBuffer
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.gate import Action, GateDecision
from skillopt_airflow.core.item_scores import Evaluation, metric_value
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Value

WEIGHT_OF_CURRENT = 2.0
"""Earlier candidates that the current skill counts for: it is what the next candidate differs least from."""


class ItemRecord(Value):
    """The scores of one item."""

    total: float
    count: int


class TrackRecord(Value):
    """The records by item id; values of the gate's metric."""

    items: dict[str, ItemRecord] = Field(default_factory=dict)
    stored: str = ""
    """Name under which the run keeps the items; empty if nowhere yet, or in the same document."""

    def expected(self, item: str, current: float) -> float:
        """Estimate the next candidate's score on the item, given the current skill's."""
        record = self.items.get(item, ItemRecord(total=0.0, count=0))
        return (WEIGHT_OF_CURRENT * current + record.total) / (WEIGHT_OF_CURRENT + record.count)

    def with_scores(self, evaluation: Evaluation, rules: EvaluationGroup) -> "TrackRecord":
        """Return the record after one more candidate was measured, wholly or in part."""
        items = dict(self.items)
        for item, score in evaluation.scores.items():
            before = items.get(item, ItemRecord(total=0.0, count=0))
            value = metric_value(score, rules.gate_metric, rules.gate_mixed_weight)
            items[item] = ItemRecord(total=math.fsum((before.total, value)), count=before.count + 1)
        return TrackRecord(items=items)


class Measured(Value):
    """A version of the skill and its scores on the selection split."""

    version: int
    """Numbers count accepted skills; 0 is the seed."""
    sha256: str
    evaluation: Evaluation
    has_new_notes: bool = False
    """True if notes were added since, so that the scores are those of the text without them."""


class RunState(Document):
    """The state of the run after a moment; the buffer holds the current epoch's steps."""

    moment: str
    """Name of the moment that committed it."""
    step: int
    """Steps taken so far."""
    current: Measured
    best: Measured
    newest: int = 0
    """The highest version so far."""
    buffer: StepBuffer = StepBuffer()
    record: TrackRecord = TrackRecord()
    """The scores of candidates so far on each item of the selection split."""
    meta_skill: str = ""
    """The optimizer's memory across epochs; never part of the skill."""
    stopped: str = ""
    """The reason why the run stops here although it had more moments; empty while it goes on."""

    def in_new_epoch(self) -> "RunState":
        return self.model_copy(update={"buffer": StepBuffer()})


def seed_state(moment: Moment, seed: Measured) -> RunState:
    return RunState(moment=moment.name, step=0, current=seed, best=seed)


def advance(state: RunState, moment: Moment, candidate: Measured, decision: GateDecision) -> RunState:
    """Return the state after the gate has decided on a candidate."""
    accepted = decision.action.accepted
    return state.model_copy(
        update={
            "moment": moment.name,
            "step": moment.step,
            "current": candidate if accepted else state.current,
            "best": candidate if decision.action is Action.ACCEPT_NEW_BEST else state.best,
            "newest": candidate.version if accepted else state.newest,
        }
    )


def compete(state: RunState, moment: Moment, last: Measured, decision: GateDecision) -> RunState:
    """Return the state at the run's end, where the last skill becomes the best one if it beats it."""
    best = last if decision.action is Action.ACCEPT_NEW_BEST else state.best
    return state.model_copy(update={"moment": moment.name, "current": last, "best": best})
