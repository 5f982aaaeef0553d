"""The step buffer: what an epoch has seen fail and tried in vain, as negative feedback for later steps."""

from collections.abc import Sequence

from skillopt_airflow.core.types import Edit, FailurePattern, Value


class BufferEntry(Value):
    """One step: its failure patterns and, if its candidate was rejected, what was tried and how it scored."""

    step: int
    failure_patterns: tuple[FailurePattern, ...] = ()
    rejected_edits: tuple[Edit, ...] = ()
    score_before: float | None = None
    score_after: float | None = None


class StepBuffer(Value):
    """The entries of one epoch, oldest first."""

    entries: tuple[BufferEntry, ...] = ()

    def with_entry(self, entry: BufferEntry) -> "StepBuffer":
        """Return the buffer after one more step."""
        return StepBuffer(entries=(*self.entries, entry))


def entry_of(
    step: int,
    patterns: Sequence[FailurePattern],
    rejected: Sequence[Edit],
    before: float | None,
    after: float | None,
) -> BufferEntry:
    """Return the entry of a step; only rejected edits come with scores, if there are some."""
    if not rejected:
        return BufferEntry(step=step, failure_patterns=tuple(patterns))
    return BufferEntry(
        step=step,
        failure_patterns=tuple(patterns),
        rejected_edits=tuple(rejected),
        score_before=before,
        score_after=after,
    )
