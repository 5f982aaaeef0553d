"""The state of a training after a step: all that the next step needs."""

from collections.abc import Sequence

from include.core.buffer import StepBuffer, entry_of
from include.core.gate import GateDecision
from include.core.scoring import Evaluation
from include.core.types import Edit, FailurePattern, Value


class Measured(Value):
    """A version of the skill and its scores on the selection split."""

    version: int
    """Step that made it; 0 is the seed skill."""
    sha256: str
    evaluation: Evaluation


class RunState(Value):
    """After `step` steps (0: the seed was measured); the buffer holds the current epoch's steps."""

    step: int
    current: Measured
    best: Measured
    buffer: StepBuffer = StepBuffer()

    def in_new_epoch(self) -> "RunState":
        """The state with which an epoch opens: its memory of steps starts empty."""
        return self.model_copy(update={"buffer": StepBuffer()})


def advance(
    state: RunState,
    candidate: Measured,
    decision: GateDecision,
    edits: Sequence[Edit],
    patterns: Sequence[FailurePattern],
) -> RunState:
    """The state after the gate has decided on the candidate of the next step."""
    step = state.step + 1
    accepted = decision.action.accepted
    is_best = decision.action == "accept_new_best"
    compared = decision.against_current
    rejected = edits if decision.action == "reject" else ()
    return RunState(
        step=step,
        current=candidate if accepted else state.current,
        best=candidate if is_best else state.best,
        buffer=state.buffer.with_entry(
            entry_of(step, patterns, rejected, before=compared.other_score, after=compared.score)
        ),
    )
