from include.core.buffer import BufferEntry, StepBuffer, entry_of
from include.core.config import EvaluationGroup
from include.core.gate import Action, decide
from include.core.scoring import Evaluation, ItemScore
from include.core.state import Measured, RunState, advance
from include.core.types import Edit, FailurePattern, Status

EDITS = (Edit(op="append", content="x"),)
PATTERNS = (FailurePattern(description="d", item_ids=("a",)),)


def version(number: int, *hard: float, failed: int = 0) -> Measured:
    scores = {f"i{index}": ItemScore(hard=value, soft=value) for index, value in enumerate(hard)}
    failures = {Status.TIMEOUT: failed} if failed else {}
    return Measured(version=number, sha256=f"sha-{number}", evaluation=Evaluation(scores=scores, failures=failures))


def after(state: RunState, candidate: Measured) -> tuple[RunState, Action]:
    decision = decide(
        candidate.evaluation, state.current.evaluation, state.best.evaluation, EvaluationGroup(min_coverage=0.95)
    )
    return advance(state, candidate, decision, EDITS, PATTERNS), decision.action


SEED = RunState(step=0, current=version(0, 0, 0, 0), best=version(0, 0, 0, 0))


def test_score_0_survives_storage_and_is_not_beaten_by_0() -> None:
    resumed = RunState.model_validate_json(SEED.model_dump_json())
    assert resumed == SEED
    state, action = after(resumed, version(1, 0, 0, 0))
    assert action == Action.REJECT
    assert (state.step, state.current.version, state.best.version) == (1, 0, 0)
    (entry,) = state.buffer.entries
    assert (entry.score_before, entry.score_after) == (0.0, 0.0)
    assert StepBuffer.model_validate_json(state.buffer.model_dump_json()) == state.buffer


def test_a_new_best() -> None:
    state, _ = after(SEED, version(1, 1, 0, 0))
    assert (state.current.version, state.best.version) == (1, 1)
    assert state.buffer.entries == (BufferEntry(step=1, failure_patterns=PATTERNS),)


def test_better_than_current_only() -> None:
    before = SEED.model_copy(update={"best": version(3, 1, 1, 0), "step": 4})
    state, _ = after(before, version(5, 1, 0, 0))
    assert (state.step, state.current.version, state.best.version) == (5, 5, 3)


def test_an_indecisive_step_changes_nothing_and_rejects_nothing() -> None:
    state, action = after(SEED, version(1, 1, failed=2))
    assert action == Action.INDECISIVE
    assert (state.step, state.current, state.best) == (1, SEED.current, SEED.best)
    assert state.buffer.entries == (BufferEntry(step=1, failure_patterns=PATTERNS),)


def test_the_memory_of_steps_lives_for_an_epoch() -> None:
    state, _ = after(SEED, version(1, 0, 0, 0))
    state, _ = after(state, version(2, 0, 0, 0))
    assert [entry.step for entry in state.buffer.entries] == [1, 2]
    fresh = state.in_new_epoch()
    assert fresh.buffer == StepBuffer()
    assert (fresh.step, fresh.current, fresh.best) == (state.step, state.current, state.best)
    assert len(state.buffer.entries) == 2


def test_scores_go_with_rejected_edits_only() -> None:
    entry = entry_of(1, PATTERNS, (), before=0.5, after=0.25)
    assert (entry.score_before, entry.score_after) == (None, None)
