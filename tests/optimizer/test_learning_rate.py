from typing import Any

import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.run.state import BufferEntry, StepBuffer
from skillopt_airflow.core.values.types import Edit, FailurePattern, Patch, Score
from skillopt_airflow.optimizer.learning_rate import ChosenRate, learning_rate, select

SCORES = [Score(hard=hard, soft=soft) for hard, soft in ((1, 1), (0, 0.5), (0, 0.5), (0, 0))]
BUFFER = StepBuffer(entries=(BufferEntry(step=1),))
PATCH = Patch(edits=tuple(Edit(op="append", content=name) for name in "abc"))


def chosen(answer: dict[str, Any] | Exception, most: int = 4) -> ChosenRate:
    return learning_rate(ScriptedOptimizer(answer), "# Skill", PATCH, most, SCORES, StepBuffer(), "")


def test_what_the_optimizer_is_shown() -> None:
    optimizer = ScriptedOptimizer({"learning_rate": 2, "reason": "two  help"}, {"learning_rate": 2})
    assert learning_rate(optimizer, "# Skill", PATCH, 4, SCORES, BUFFER, "small steps") == ChosenRate(
        rate=2, reason="two help"
    )
    learning_rate(optimizer, "# Skill", PATCH, 4, SCORES, BUFFER, "")
    (stage, prompt), (_, without) = optimizer.calls
    assert (stage, section(prompt, "skill"), section(prompt, "most")) == ("learning_rate", "# Skill", "4")
    assert [edit["content"] for edit in json_section(prompt, "edits")] == ["a", "b", "c"]
    assert json_section(prompt, "scores") == {"rollouts": 4, "failed": 3, "hard": 0.25, "soft": 0.5}
    assert json_section(prompt, "step_buffer") == [{"step": 1, "items": 0, "failed": 0, "failure_patterns": []}]
    assert prompt == f"{without}\n\n<meta_skill>\nsmall steps\n</meta_skill>"


@pytest.mark.parametrize("rate", [0, 4])
def test_every_rate_up_to_the_most_is_legal(rate: int) -> None:
    assert chosen({"learning_rate": rate}) == ChosenRate(rate=rate)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"learning_rate": -1, "reason": "x"}, "a rate below 0"),
        ({"learning_rate": 5}, "a rate above 4"),
        ({"learning_rate": 10**4_000}, "a rate above 4"),
        (unusable("no number"), "no number"),
    ],
)
def test_another_answer_gives_way_to_the_most(answer: dict[str, Any] | Exception, why: str) -> None:
    assert chosen(answer) == ChosenRate(rate=4, fallback=f"learning_rate: {why}")


def test_without_edits_there_is_no_call_and_a_reason_of_megabytes_is_cut() -> None:
    assert len(chosen({"learning_rate": 1, "reason": "why " * 2_500_000}).reason) == 2_000
    assert learning_rate(ScriptedOptimizer(), "# Skill", Patch(), 4, [], StepBuffer(), "").rate == 0


EDITS = tuple(
    Edit(op="append", content=name, support_count=count) for name, count in zip("abcd", (1, 3, 2, 3), strict=True)
)
RANKED_PATCH = Patch(edits=EDITS, failure_patterns=(FailurePattern(description="d"),), fallback="merge: x")


def contents(patch: Patch) -> str:
    return "".join(edit.content for edit in patch.edits)


@pytest.mark.parametrize("budget", [4, None])
def test_within_the_budget_there_is_no_call(budget: int | None) -> None:
    optimizer = ScriptedOptimizer()
    assert select(optimizer, "# Skill", RANKED_PATCH, budget, "") is RANKED_PATCH
    single = Patch(edits=(Edit(op="rewrite", content="x"),))
    assert select(optimizer, "# Skill", single, budget, "") is single


@pytest.mark.parametrize(
    ("order", "kept"),
    [([3, 1, 0, 2], "db"), ([2, 2, 2], "ca"), ([9, -1, 3, 4, 0], "da"), ([*range(1_000_000, 0, -1)], "dc")],
    ids=["all", "one", "unknown", "million"],
)
def test_the_order_of_the_optimizer_decides(order: list[int], kept: str) -> None:
    optimizer = ScriptedOptimizer({"order": order})
    chosen = select(optimizer, "# Skill", RANKED_PATCH, 2, "short rules win")
    assert contents(chosen) == kept
    assert (chosen.fallback, chosen.failure_patterns) == (RANKED_PATCH.fallback, RANKED_PATCH.failure_patterns)
    ((stage, prompt),) = optimizer.calls
    assert stage == "rank"
    assert prompt.endswith("\n\n<meta_skill>\nshort rules win\n</meta_skill>")
    assert (section(prompt, "skill"), section(prompt, "budget")) == ("# Skill", "2")
    assert [edit["index"] for edit in json_section(prompt, "edits")] == [0, 1, 2, 3]


@pytest.mark.parametrize("answer", [{"order": [4, -1, 99]}, unusable("names none")])
def test_an_unusable_answer_falls_back_to_support(answer: dict[str, list[int]] | Exception) -> None:
    chosen = select(ScriptedOptimizer(answer), "# Skill", RANKED_PATCH, 3, "")
    assert contents(chosen) == "bdc"
    assert chosen.fallback.startswith("merge: x; rank: ")
    assert "names none" in chosen.fallback
    assert chosen.failure_patterns == RANKED_PATCH.failure_patterns


def test_a_learning_rate_of_0_keeps_nothing_and_asks_nobody() -> None:
    chosen = select(ScriptedOptimizer(), "# Skill", RANKED_PATCH, 0, "")
    assert (chosen.edits, chosen.failure_patterns) == ((), RANKED_PATCH.failure_patterns)


@pytest.mark.parametrize(("budget", "kept"), [(4, "y"), (1, "y"), (None, "y"), (0, "")])
def test_of_rewrites_one_stays(budget: int | None, kept: str) -> None:
    rewrites = Patch(edits=(Edit(op="rewrite", content="x"), Edit(op="rewrite", content="y")))
    optimizer = ScriptedOptimizer({"order": [1, 0]})
    assert contents(select(optimizer, "# Skill", rewrites, budget, "")) == kept
    assert [section(prompt, "budget") for _, prompt in optimizer.calls] == (["1"] if kept else [])
