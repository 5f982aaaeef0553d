import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.paired import paired_values
from skillopt_airflow.core.run.state import (
    BufferEntry,
    Measured,
    ReflectedItems,
    RunState,
    StepBuffer,
    advance,
    compete,
    entry_of,
    seed_state,
    tried_edits,
)
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import apply_edits, note_edits
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, FailurePattern, Note, Patch, Status

EDITS = (Edit(op="append", content="x"),)
REPORT = apply_edits(SkillDocument("# Skill\n"), EDITS)[1]
WORSE = paired_values([(0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (0.5, 0.5)])
PATTERNS = (FailurePattern(description="d", item_ids=("a",)),)
RANKED = Patch(edits=EDITS, failure_patterns=PATTERNS)
SEEN = ReflectedItems(item_ids=("a", "b", "c"), failed=2)
RULES = EvaluationGroup(min_coverage=0.95)


def version(number: int, *hard: float, failed: int = 0) -> Measured:
    scores = {f"i{index}": ItemScore(hard=value, soft=value) for index, value in enumerate(hard)}
    failures = {Status.TIMEOUT: failed} if failed else {}
    return Measured(version=number, sha256=f"sha-{number}", evaluation=Evaluation(scores=scores, failures=failures))


def step(number: int) -> Moment:
    return Moment(kind="step", epoch=1, step=number)


def judged(state: RunState, candidate: Measured, *, force: bool = False) -> GateDecision:
    current, best = state.current.evaluation, state.best.evaluation
    return decide(candidate.evaluation, current, best, RULES, force=force)


def after(state: RunState, candidate: Measured, *, force: bool = False) -> tuple[RunState, Action]:
    decision = judged(state, candidate, force=force)
    return advance(state, step(state.step + 1), candidate, decision), decision.action


SEED = seed_state(Moment(kind="seed", epoch=0, step=0), version(0, 0, 0, 0))


def test_the_seed_is_current_and_best_and_its_score_0_is_not_beaten_by_0() -> None:
    assert (SEED.moment, SEED.step, SEED.newest) == ("steps/step_0000", 0, 0)
    assert SEED.current == SEED.best == version(0, 0, 0, 0)
    assert (SEED.buffer, SEED.meta_skill, SEED.stopped) == (StepBuffer(), "", "")
    resumed = RunState.model_validate_json(SEED.model_dump_json())
    assert resumed == SEED
    state, action = after(resumed, version(1, 0, 0, 0))
    assert action == Action.REJECT
    assert (state.moment, state.step, state.newest) == ("steps/step_0001", 1, 0)
    assert (state.current, state.best) == (SEED.current, SEED.best)


def test_a_step_may_beat_best_current_only_or_decide_nothing_or_be_taken_without_the_gate() -> None:
    before, _ = after(SEED, version(1, 1, 1, 0))
    state, action = after(before, version(2, 0, 0, 0), force=True)
    assert action == Action.ACCEPT
    assert (state.current.version, state.best.version, state.newest) == (2, 1, 2)
    state, action = after(SEED, version(1, 1, 0, 0))
    assert action == Action.ACCEPT_NEW_BEST
    assert (state.current.version, state.best.version, state.newest) == (1, 1, 1)
    state, action = after(SEED, version(1, 1, failed=2))
    assert action == Action.INDECISIVE
    assert state == SEED.model_copy(update={"moment": "steps/step_0001", "step": 1})
    before = SEED.model_copy(update={"best": version(3, 1, 1, 0), "step": 4, "newest": 4})
    state, action = after(before, version(5, 1, 0, 0))
    assert action == Action.ACCEPT
    assert (state.step, state.current.version, state.best.version, state.newest) == (5, 5, 3, 5)


def test_an_epoch_s_end_takes_no_step() -> None:
    before, _ = after(SEED, version(1, 1, 0, 0))
    candidate = version(2, 1, 1, 0)
    end = Moment(kind="slow_update", epoch=2, step=1)
    state = advance(before, end, candidate, judged(before, candidate))
    assert (state.moment, state.step) == ("slow_update/epoch_02", 1)
    assert (state.current, state.best, state.newest) == (candidate, candidate, 2)


OUTCOMES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=3), max_size=12)


@given(OUTCOMES, st.booleans())
def test_best_only_rises_and_versions_count_what_was_accepted(outcomes: list[list[float]], force: bool) -> None:
    state, accepted = SEED, 0
    for hard in outcomes:
        before = state
        state, action = after(before, version(before.newest + 1, *hard), force=force)
        accepted += action.accepted
        assert state.newest == accepted
        assert state.current.version == state.newest, "the current skill is the last one that was accepted"
        assert state.best.version <= state.newest
        assert state.best.evaluation.mean("hard") >= before.best.evaluation.mean("hard")
        assert force or state.current.evaluation.mean("hard") >= before.current.evaluation.mean("hard")
    assert state.step == len(outcomes)


def test_a_state_keeps_what_a_decision_is_not_about() -> None:
    kept = {"buffer": StepBuffer(entries=(BufferEntry(step=1),)), "meta_skill": "short edits", "stopped": "why"}
    before = SEED.model_copy(update=kept)
    state, _ = after(before, version(1, 1, 0, 0))
    assert (state.buffer, state.meta_skill, state.stopped) == (before.buffer, "short edits", "why")
    state = compete(before, Moment(kind="final", epoch=1, step=0), before.current, judged(before, before.current))
    assert (state.buffer, state.meta_skill, state.stopped) == (before.buffer, "short edits", "why")


@pytest.mark.parametrize(("hard", "best"), [((1, 1, 1), 3), ((1, 1, 0), 2), ((0, 0, 0), 2)])
def test_at_the_end_the_last_skill_is_best_if_it_beats_it(hard: tuple[float, ...], best: int) -> None:
    before = SEED.model_copy(
        update={"current": version(3, 1, failed=2), "best": version(2, 1, 1, 0), "newest": 3, "step": 8}
    )
    last = version(3, *hard)
    state = compete(before, Moment(kind="final", epoch=2, step=8), last, judged(before, last, force=True))
    assert (state.moment, state.step, state.newest) == ("final", 8, 3)
    assert (state.current, state.best.version) == (last, best)


def test_the_memory_of_steps_lives_for_an_epoch() -> None:
    buffer = StepBuffer()
    for number in (1, 2):
        buffer = buffer.with_entry(entry_of(number, SEEN, RANKED, REPORT, Action.REJECT, WORSE))
    state = SEED.model_copy(update={"buffer": buffer})
    assert [entry.step for entry in state.buffer.entries] == [1, 2]
    assert StepBuffer.model_validate_json(state.buffer.model_dump_json()) == state.buffer
    fresh = state.in_new_epoch()
    assert fresh.buffer == StepBuffer()
    assert fresh == state.model_copy(update={"buffer": StepBuffer()})
    assert len(state.buffer.entries) == 2


@pytest.mark.parametrize(
    ("action", "tried"),
    [
        (Action.ACCEPT_NEW_BEST, "accepted_edits"),
        (Action.REJECT, "rejected_edits"),
        (Action.UNDERPOWERED, "undecided_edits"),
    ],
)
def test_a_step_leaves_what_it_tried_and_what_came_of_it(action: Action, tried: str) -> None:
    entry = entry_of(1, SEEN, RANKED, REPORT, action, WORSE)
    listed = {name: edits for name, edits in entry if name.endswith("_edits") and edits}
    assert listed == {tried: EDITS}
    assert (entry.items, entry.failed, entry.score_before, entry.score_after) == (3, 2, 0.5, 0.25)
    assert entry.interval == (WORSE.low, WORSE.high)


def test_scores_go_with_edits_that_were_judged() -> None:
    unscored = BufferEntry(step=1, items=3, failed=2, failure_patterns=PATTERNS)
    assert entry_of(1, SEEN, Patch(failure_patterns=PATTERNS), REPORT, Action.REJECT, WORSE) == unscored
    assert entry_of(1, SEEN, RANKED, REPORT, Action.INDECISIVE, WORSE) == unscored
    nothing = entry_of(1, SEEN, RANKED, REPORT, Action.REJECT, paired_values([]))
    assert (nothing.rejected_edits, nothing.score_before, nothing.interval) == (EDITS, None, None)


SKILL = SkillDocument("# Skill\n\n- one\n- two\n").with_region("APPENDIX", "- Known note.")
GOOD = Edit(op="replace", anchor="- one", content="- better")
LOST = Edit(op="replace", anchor="- another", content="- nowhere")


def tried(ranked: tuple[Edit, ...], applied: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tried_edits(Patch(edits=ranked), apply_edits(SKILL, applied)[1])


def test_an_edit_that_did_not_reach_the_candidate_was_not_tried() -> None:
    assert tried((GOOD, LOST), (GOOD, LOST)) == (GOOD,)
    assert tried((LOST,), (LOST,)) == ()


def test_edits_of_which_a_body_was_written_were_tried() -> None:
    written = Edit(op="rewrite", content="# Skill\n\n- better\n")
    assert tried((GOOD, LOST), (written,)) == (GOOD, LOST)


def test_of_notes_the_new_line_of_each_was_tried() -> None:
    notes = note_edits(SKILL, (Note(text="New A.", minibatch="failure 1"), Note(text="New B.", minibatch="failure 2")))
    assert [edit.content for edit in tried((GOOD,), (GOOD, *notes))] == ["- better", "- New A.", "- New B."]
