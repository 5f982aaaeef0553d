"""The state of a training after a moment, which is the input of the next moment."""

from pydantic import Field

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, gate_value
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.types import Edit, FailurePattern, Patch, Value


class ReflectedItems(Document):
    """The items of a step that had a score when its reflection began, and the number of failed ones."""

    item_ids: tuple[str, ...]
    failed: int = 0
    samples: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """The scored samples by item; an item with only the first sample may be missing."""

    def samples_of(self, item_id: str) -> tuple[int, ...]:
        return self.samples.get(item_id, (0,)) if item_id in self.item_ids else ()


class BufferEntry(Value):
    """A step for later optimizer calls: its failure patterns, edits and scores.

    The edits are in one of three fields, by the gate's action; after `indecisive` all three are empty.
    """

    step: int
    items: int = 0
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


def tried_edits(ranked: Patch, report: EditApplyReport) -> tuple[Edit, ...]:
    """Return a candidate's edits as proposed by the optimizer, without skipped ones, and its new notes."""
    applied = [row for row in report.rows if row.status != "skipped"]
    rewritten, known = any(row.edit.op == "rewrite" for row in applied), [row.edit for row in applied]
    tried = [edit for edit in ranked.edits if rewritten or edit in known]
    for row in applied:
        if row.edit.op == "region":
            before = row.removed.split("\n")
            added = [line for line in row.inserted.split("\n") if line not in before]
            tried.append(row.edit.model_copy(update={"content": "\n".join(added)}))
    return tuple(tried)


WEIGHT_OF_CURRENT = 2.0
"""Weight of the current skill, in earlier candidates: the next candidate differs least from it."""


class ItemRecord(Value):
    """Sum and number of an item's scores."""

    total: float = 0.0
    count: int = 0


UNTRIED = ItemRecord()


class TrackRecord(Value):
    """Records of the gate metric by item id, over all candidates so far."""

    items: dict[str, ItemRecord] = Field(default_factory=dict)
    stored: str = ""
    """Name under which the run stores the items; empty if not yet stored, or in the same document."""

    def expected(self, item: str, current: float) -> float:
        """Estimate the next candidate's score on the item, given the current skill's."""
        record = self.items.get(item, UNTRIED)
        return (WEIGHT_OF_CURRENT * current + record.total) / (WEIGHT_OF_CURRENT + record.count)

    def with_scores(self, evaluation: Evaluation, rules: EvaluationGroup) -> "TrackRecord":
        """Return the record with the scores of another candidate, which may be incomplete."""
        tried = dict(self.items)
        for item, score in evaluation.scores.items():
            record = self.items.get(item, UNTRIED)
            tried[item] = ItemRecord(total=record.total + gate_value(score, rules), count=record.count + 1)
        return TrackRecord(items=tried)


class Measured(Value):
    """A version of the skill and its scores on the selection split."""

    version: int
    """Numbers count accepted skills; 0 is the seed."""
    sha256: str
    evaluation: Evaluation
    has_new_notes: bool = False
    """True if the skill has notes that aren't included in the scores."""


class RunState(Document):
    """The state of the run after the named moment and finished step; the buffer has the current epoch's steps."""

    moment: str
    step: int
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


def seed_state(moment: Moment, seed: Measured) -> RunState:
    return RunState(moment=moment.name, step=0, current=seed, best=seed)
