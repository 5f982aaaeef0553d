from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import ScriptedOptimizer, rollout, section, unusable

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.pictures import Pictures
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.optimizer.deep_reflect import follow_ups, probes, questions
from skillopt_airflow.optimizer.transcripts import FollowUp

HARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30)
CONVERSATION = (
    Message(role="system", content="the skill"),
    Message(role="user", content="the exercise"),
    Message(role="assistant", content="the answer"),
)
ROLLOUTS = [rollout("a", messages=CONVERSATION), rollout("b", 1.0)]


class ScriptedTarget:
    """Answers by its last question; an exception is raised."""

    def __init__(self, answers: dict[str, str | Exception]) -> None:
        self._answers = answers
        self.calls: list[tuple[str, tuple[Message, ...]]] = []

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        self.calls.append((stage, tuple(messages)))
        answer = self._answers[messages[-1].content]
        if isinstance(answer, Exception):
            raise answer
        return answer


@given(HARDS, st.integers(0, 5), st.integers(0, 5), st.randoms(use_true_random=False))
def test_probes_are_of_the_wanted_kind_and_do_not_depend_on_order(
    hards: list[float | None], failures: int, successes: int, random: Any
) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hard in enumerate(hards)]
    hard_of = {r.trajectory.item_id: r.score.hard for r in rollouts if r.score is not None}
    chosen = probes(rollouts, failures, successes, "s")
    assert len(set(chosen)) == len(chosen)
    failed = [item_id for item_id in chosen if hard_of[item_id] < 1]
    assert len(failed) == min(failures, sum(hard < 1 for hard in hard_of.values()))
    assert len(chosen) - len(failed) == min(successes, sum(hard == 1 for hard in hard_of.values()))
    random.shuffle(rollouts)
    assert probes(rollouts, failures, successes, "s") == chosen


def test_an_item_that_was_won_and_lost_is_probed_once_as_a_failure() -> None:
    rollouts = [rollout("a", 1.0), rollout("a"), rollout("b", 1.0), rollout("b", 1.0)]
    assert probes(rollouts, 4, 4, "s") == ("a", "b")
    assert probes(rollouts, 0, 4, "s") == ("b",)
    # The seed chooses.
    many = [rollout(f"i{index:02d}") for index in range(40)]
    assert probes(many, 4, 0, "1") != probes(many, 4, 0, "2")


def asked(*proposed: tuple[int, str]) -> tuple[dict[str, str], str]:
    answer = {"questions": [{"item": item, "question": question} for item, question in proposed]}
    return questions(ScriptedOptimizer(answer), "# Skill", ROLLOUTS, 50_000)


def test_what_the_optimizer_is_shown() -> None:
    optimizer = ScriptedOptimizer({"questions": [{"item": "Item 1", "question": " Why? "}]})
    assert questions(optimizer, "# Skill", ROLLOUTS, 50_000) == ({"a": "Why?"}, "")
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill")) == ("deep_reflect", "# Skill")
    shown = section(prompt, "trajectories").splitlines()
    assert [line for line in shown if line.startswith("#")] == [
        "## Item 1: hard 0, soft 0",
        "## Item 2: hard 1, soft 1",
    ]


@pytest.mark.parametrize(
    ("proposed", "flaw"),
    [
        ((3, "Why?"), "unknown item 3"),
        ((1, "\n"), "about item 1 is blank"),
        ((1, "x" * 10_000_000), "about item 1 has 10,"),
    ],
)
def test_a_question_that_cannot_be_asked_is_left_out_and_named(proposed: tuple[int, str], flaw: str) -> None:
    found, fallback = asked(proposed, (2, "Good?"), (2, "A second one?"))
    assert found == {"b": "Good?"}
    assert flaw in fallback


def test_an_unusable_answer_asks_nothing() -> None:
    refused = questions(ScriptedOptimizer(unusable("refused")), "# Skill", ROLLOUTS, 50_000)
    assert refused == ({}, "deep_reflect: refused")
    assert asked() == ({}, "")


def test_without_rollouts_there_is_no_call() -> None:
    assert questions(ScriptedOptimizer(), "# Skill", [], 50_000) == ({}, "")
    assert follow_ups(ScriptedTarget({}), ROLLOUTS, {}, {}) == ({}, "")


def test_the_conversation_goes_on_with_the_question_and_all_are_answered_in_order() -> None:
    target = ScriptedTarget({"A?": "a", "B?": "b"})
    answered, fallback = follow_ups(target, ROLLOUTS, {"b": "B?", "a": "A?", "elsewhere": "C?"}, {})
    assert answered == {"a": FollowUp(question="A?", answer="a"), "b": FollowUp(question="B?", answer="b")}
    assert ([*answered], fallback) == (["a", "b"], "")
    assert len(target.calls) == 2
    assert ("follow_up", (*CONVERSATION, Message(role="user", content="A?"))) in target.calls


@pytest.mark.parametrize(
    ("answer", "why"), [(ModelError("the target answered 503"), "503"), ("", "blank"), ("x" * 10_000_000, "10,000,000")]
)
def test_a_question_without_a_useful_answer_is_dropped_and_said(answer: str | Exception, why: str) -> None:
    answered, fallback = follow_ups(ScriptedTarget({"A?": answer, "B?": "b"}), ROLLOUTS, {"a": "A?", "b": "B?"}, {})
    assert answered == {"b": FollowUp(question="B?", answer="b")}
    assert fallback.startswith("follow_up: a: ")
    assert why in fallback
