"""The state of a training after a moment, which is the input of the next moment."""

import math

from pydantic import Field

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.gate.item_scores import Evaluation, metric_value
from skillopt_airflow.core.gate.paired import PairedTable
from skillopt_airflow.core.gate.policies import Action
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.edits import EditApplyReport, EditReport
from skillopt_airflow.core.values.types import Edit, FailurePattern, Patch, Value


class ReflectedItems(Document):
    """The items of a step that had a score when its reflection began."""

    item_ids: tuple[str, ...]
    failed: int = 0
    """Number of failed items."""
    draws: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """The scored draws by item; an item with only the first draw may be missing."""

    def draws_of(self, item_id: str) -> tuple[int, ...]:
        if item_id not in self.item_ids:
            return ()
        return self.draws.get(item_id, (0,))


class BufferEntry(Value):
    """A step for later optimizer calls: its failure patterns, edits and scores.

    The edits are in one of three fields, by the gate's action; after `indecisive` all three are empty.
    """

    step: int
    items: int = 0
    """Items in the reflection."""
    failed: int = 0
    failure_patterns: tuple[FailurePattern, ...] = ()
    accepted_edits: tuple[Edit, ...] = ()
    rejected_edits: tuple[Edit, ...] = ()
    undecided_edits: tuple[Edit, ...] = ()
    """The edits of an underpowered candidate."""
    score_before: float | None = None
    score_after: float | None = None
    interval: tuple[float, float] | None = None
    """95% confidence interval of the joint effect of all edits."""


class StepBuffer(Value):
    """The entries of one epoch, oldest first."""

    entries: tuple[BufferEntry, ...] = ()

    def with_entry(self, entry: BufferEntry) -> "StepBuffer":
        return StepBuffer(entries=(*self.entries, entry))


def entry_of(
    step: int,
    reflected: ReflectedItems,
    ranked: Patch,
    report: EditApplyReport,
    action: Action,
    compared: PairedTable,
) -> BufferEntry:
    """Return the entry of a step; `compared` is the candidate against the current skill."""
    edits = () if action is Action.INDECISIVE else tried_edits(ranked, report)
    measured = compared if edits and compared.pairs else None
    return BufferEntry(
        step=step,
        items=len(reflected.item_ids),
        failed=reflected.failed,
        failure_patterns=ranked.failure_patterns,
        accepted_edits=edits if action.accepted else (),
        rejected_edits=edits if action is Action.REJECT else (),
        undecided_edits=edits if action is Action.UNDERPOWERED else (),
        score_before=None if measured is None else measured.other_score,
        score_after=None if measured is None else measured.score,
        interval=None if measured is None else (measured.low, measured.high),
    )


def tried_edits(ranked: Patch, report: EditApplyReport) -> tuple[Edit, ...]:
    """Return a candidate's edits as proposed by the optimizer, without skipped ones, and its new notes."""
    applied = [row for row in report.rows if row.status != "skipped"]
    rewritten, known = any(row.edit.op == "rewrite" for row in applied), [row.edit for row in applied]
    edits = (edit for edit in ranked.edits if rewritten or edit in known)
    return (*edits, *(_new_lines(row) for row in applied if row.edit.op == "region"))


def _new_lines(row: EditReport) -> Edit:
    """Return an edit of a region, reduced to the lines that it adds."""
    before = row.removed.split("\n")
    added = [line for line in row.inserted.split("\n") if line not in before]
    return row.edit.model_copy(update={"content": "\n".join(added)})


WEIGHT_OF_CURRENT = 2.0
"""Weight of the current skill, in earlier candidates: the next candidate differs least from it."""


class ItemRecord(Value):
    """Sum and number of an item's scores."""

    total: float
    count: int


class TrackRecord(Value):
    """Records of the gate metric by item id, over all candidates so far."""

    items: dict[str, ItemRecord] = Field(default_factory=dict)
    stored: str = ""
    """Name under which the run stores the items; empty if not yet stored, or in the same document."""

    def expected(self, item: str, current: float) -> float:
        """Estimate the next candidate's score on the item, given the current skill's."""
        record = self.items.get(item, ItemRecord(total=0.0, count=0))
        return (WEIGHT_OF_CURRENT * current + record.total) / (WEIGHT_OF_CURRENT + record.count)

    def with_scores(self, evaluation: Evaluation, rules: EvaluationGroup) -> "TrackRecord":
        """Return the record with the scores of another candidate, which may be incomplete."""
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
    """True if the skill has notes that aren't included in the scores."""


class RunState(Document):
    """The state of the run after a moment; the buffer has the current epoch's steps."""

    moment: str
    """Name of the moment."""
    step: int
    """Number of finished steps."""
    current: Measured
    best: Measured
    newest: int = 0
    """The highest version so far."""
    buffer: StepBuffer = StepBuffer()
    record: TrackRecord = TrackRecord()
    meta_skill: str = ""
    """The optimizer's memory across epochs; never part of the skill."""
    stopped: str = ""
    """The reason why the run stops here before its planned end; empty if it continues."""

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
    best = last if decision.action is Action.ACCEPT_NEW_BEST else state.best
    return state.model_copy(update={"moment": moment.name, "current": last, "best": best})
