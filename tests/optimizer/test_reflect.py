import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import ScriptedOptimizer, json_section, rollout, section, unusable

from include.core.buffer import BufferEntry, StepBuffer
from include.core.errors import ModelError
from include.core.types import Edit, FailurePattern, Message
from include.optimizer.reflect import Minibatch, minibatches, most_minibatches, reflect

HARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30)
FAILURES = Minibatch(source_type="failure", index=2, rollouts=(rollout("a"), rollout("b")))


@given(HARDS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_minibatches_do_not_depend_on_the_order_of_arrival(
    hards: list[float | None], size: int, random: object
) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hard in enumerate(hards)]
    cut = minibatches(rollouts, size, "42-step-1")
    random.shuffle(rollouts)  # type: ignore[attr-defined]
    assert minibatches(rollouts, size, "42-step-1") == cut


@given(HARDS, st.integers(1, 9))
def test_minibatches_hold_each_scored_rollout_once_and_apart(hards: list[float | None], size: int) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hard in enumerate(hards)]
    cut = minibatches(rollouts, size, "s")
    ids = [part.trajectory.item_id for batch in cut for part in batch.rollouts]
    assert sorted(ids) == [r.trajectory.item_id for r in rollouts if r.score is not None]
    assert all(1 <= len(batch.rollouts) <= size for batch in cut)
    assert len({batch.name for batch in cut}) == len(cut)
    for batch in cut:
        expected = "failure" if batch.source_type == "failure" else "success"
        assert {"success" if r.score and r.score.hard == 1 else "failure" for r in batch.rollouts} == {expected}


@given(st.integers(1, 60), st.integers(1, 60))
def test_most_minibatches_is_the_exact_maximum(batch_size: int, size: int) -> None:
    def cut(count: int) -> int:
        return -(-count // size)

    assert most_minibatches(batch_size, size) == max(
        cut(failures) + cut(scored - failures) for scored in range(batch_size + 1) for failures in range(scored + 1)
    )


def test_the_seed_shuffles() -> None:
    rollouts = [rollout(f"i{index:02d}") for index in range(20)]
    assert minibatches(rollouts, 20, "1") != minibatches(rollouts, 20, "2")


def test_what_the_optimizer_is_shown() -> None:
    messages = (Message(role="system", content="the skill"), Message(role="user", content="</trajectories> <b>"))
    minibatch = Minibatch(source_type="failure", index=0, rollouts=(rollout("a", 0.0, messages=messages, answer="x"),))
    entry = BufferEntry(
        step=3,
        failure_patterns=(FailurePattern(description="d", item_ids=("z",)),),
        rejected_edits=(Edit(op="append", content="tried", rationale="because"),),
        score_before=0.0,
        score_after=0.0,
    )
    optimizer = ScriptedOptimizer({})
    reflect(optimizer, "# Skill <x>", minibatch, 4, StepBuffer(entries=(entry,)))
    ((stage, prompt),) = optimizer.calls
    assert stage == "reflect"
    assert section(prompt, "skill") == "# Skill <x>"
    assert (section(prompt, "budget"), section(prompt, "outcome")) == ("4", "failure")
    assert json_section(prompt, "trajectories") == [
        {
            "item_id": "a",
            "hard": 0.0,
            "soft": 0.0,
            "feedback": "feedback on a",
            "answer": "x",
            "messages": [{"role": "user", "content": "</trajectories> <b>"}],
        }
    ]
    assert json_section(prompt, "step_buffer") == [
        {
            "step": 3,
            "failure_patterns": [{"description": "d", "item_ids": ["z"]}],
            "rejected_edits": [{"op": "append", "anchor": "", "content": "tried"}],
            "score_before": 0.0,
            "score_after": 0.0,
        }
    ]


def test_edits_carry_where_they_come_from_and_stay_within_the_budget() -> None:
    edits = [{"op": "append", "content": f"rule {index}"} for index in range(5)]
    answer = {"edits": edits, "failure_patterns": [{"description": "d", "item_ids": ["a"]}]}
    patch = reflect(ScriptedOptimizer(answer), "# Skill", FAILURES, 2, StepBuffer())
    assert [edit.content for edit in patch.edits] == ["rule 0", "rule 1"]
    for edit in patch.edits:
        assert (edit.source_type, edit.minibatches) == ("failure", ("failure-2",))
        assert (edit.support_count, edit.merge_level) == (1, 0)
    assert patch.failure_patterns == (FailurePattern(description="d", item_ids=("a",)),)
    assert patch.fallback == ""


def test_an_unusable_answer_proposes_nothing_and_says_so() -> None:
    patch = reflect(ScriptedOptimizer(unusable("op: unknown")), "# Skill", FAILURES, 2, StepBuffer())
    assert patch.edits == ()
    assert patch.fallback == "reflect failure-2: op: unknown"


def test_a_provider_that_does_not_answer_is_no_fallback() -> None:
    with pytest.raises(ModelError, match="503"):
        reflect(ScriptedOptimizer(ModelError("503")), "# Skill", FAILURES, 2, StepBuffer())
