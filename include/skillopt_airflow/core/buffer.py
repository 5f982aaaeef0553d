"""The step buffer: what an epoch has seen fail and tried so far, as feedback for its later steps."""

from pydantic import Field

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.edits import EditApplyReport, EditReport
from skillopt_airflow.core.gate_policies import Action
from skillopt_airflow.core.paired import PairedTable
from skillopt_airflow.core.types import Edit, FailurePattern, Patch, Value


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


def entry_of(
    step: int,
    reflected: ReflectedItems,
    ranked: Patch,
    report: EditApplyReport,
    action: Action,
    compared: PairedTable,
) -> BufferEntry:
    """Return the entry of a step; `compared` is the candidate against the current skill."""
    listed = () if action is Action.INDECISIVE else tried_edits(ranked, report)
    measured = compared if listed and compared.pairs else None
    return BufferEntry(
        step=step,
        items=len(reflected.item_ids),
        failed=reflected.failed,
        failure_patterns=ranked.failure_patterns,
        accepted_edits=listed if action.accepted else (),
        rejected_edits=listed if action is Action.REJECT else (),
        undecided_edits=listed if action is Action.UNDERPOWERED else (),
        score_before=None if measured is None else measured.other_score,
        score_after=None if measured is None else measured.score,
        interval=None if measured is None else (measured.low, measured.high),
    )


def tried_edits(ranked: Patch, report: EditApplyReport) -> tuple[Edit, ...]:
    """Return what a candidate tried, as the optimizer proposed it: the edits that reached it, and its new notes."""
    made = [row for row in report.rows if row.status != "skipped"]
    written_anew, reached = any(row.edit.op == "rewrite" for row in made), [row.edit for row in made]
    edits = (edit for edit in ranked.edits if written_anew or edit in reached)
    return (*edits, *(_new_lines(row) for row in made if row.edit.op == "region"))


def _new_lines(row: EditReport) -> Edit:
    """Return an edit of a region with only the lines that it adds."""
    before = row.removed.split("\n")
    added = [line for line in row.inserted.split("\n") if line not in before]
    return row.edit.model_copy(update={"content": "\n".join(added)})
