"""The state of a training at a moment, all that the next one needs, with the buffer of its epoch's steps."""

import math

from pydantic import Field

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation, gate_value
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.types import Edit, FailurePattern, Patch, Value


class ReflectedItems(Document):
    """The items of a step that had a score when its reflection began."""

    item_ids: tuple[str, ...]
    failed: int = 0
    """How many of them failed."""
    draws: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """The tries of each item that had a score; empty where that is the first alone, as in a step with one try."""

    def draws_of(self, item_id: str) -> tuple[int, ...]:
        if item_id not in self.item_ids:
            return ()
        return self.draws.get(item_id, (0,))


class BufferEntry(Value):
    """One step: how its items failed, what was tried, what came of it, and how current skill and candidate scored.

    What was tried is in one of three fields, by the gate's action; an indecisive one lists nothing.
    """

    step: int
    items: int = 0
    """Items that were reflected on."""
    failed: int = 0
    failure_patterns: tuple[FailurePattern, ...] = ()
    accepted_edits: tuple[Edit, ...] = ()
    rejected_edits: tuple[Edit, ...] = ()
    undecided_edits: tuple[Edit, ...] = ()
    """The edits of a candidate that differed from the skill on too few items to judge."""
    score_before: float | None = None
    score_after: float | None = None
    interval: tuple[float, float] | None = None
    """95% interval of the difference of all edits together."""


class StepBuffer(Value):
    """The entries of one epoch, oldest first."""

    entries: tuple[BufferEntry, ...] = ()

    def with_entry(self, entry: BufferEntry) -> "StepBuffer":
        return StepBuffer(entries=(*self.entries, entry))


def tried_edits(ranked: Patch, report: EditApplyReport) -> tuple[Edit, ...]:
    """Return what a candidate tried, as the optimizer proposed it: the edits that reached it, and its new notes."""
    made = [row for row in report.rows if row.status != "skipped"]
    written_anew, reached = any(row.edit.op == "rewrite" for row in made), [row.edit for row in made]
    tried = [edit for edit in ranked.edits if written_anew or edit in reached]
    for row in made:
        if row.edit.op == "region":
            before = row.removed.split("\n")
            added = [line for line in row.inserted.split("\n") if line not in before]
            tried.append(row.edit.model_copy(update={"content": "\n".join(added)}))
    return tuple(tried)


WEIGHT_OF_CURRENT = 2.0
"""Earlier candidates that the current skill counts for: it is what the next candidate differs least from."""


class ItemRecord(Value):
    """The scores of one item."""

    total: float = 0.0
    count: int = 0

    def plus(self, value: float) -> "ItemRecord":
        return ItemRecord(total=math.fsum((self.total, value)), count=self.count + 1)


UNTRIED = ItemRecord()


class TrackRecord(Value):
    """The records by item id; values of the gate's metric."""

    items: dict[str, ItemRecord] = Field(default_factory=dict)
    stored: str = ""
    """Name under which the run keeps the items; empty if nowhere yet, or in the same document."""

    def expected(self, item: str, current: float) -> float:
        """Estimate the next candidate's score on the item, given the current skill's."""
        record = self.items.get(item, UNTRIED)
        return (WEIGHT_OF_CURRENT * current + record.total) / (WEIGHT_OF_CURRENT + record.count)

    def with_scores(self, evaluation: Evaluation, rules: EvaluationGroup) -> "TrackRecord":
        """Return the record after one more candidate was measured, wholly or in part."""
        values = {item: gate_value(score, rules) for item, score in evaluation.scores.items()}
        tried = {item: self.items.get(item, UNTRIED).plus(value) for item, value in values.items()}
        return TrackRecord(items=self.items | tried)


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
