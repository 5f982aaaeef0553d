import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.types import Edit, FailurePattern, Patch
from skillopt_airflow.optimizer.select import select

EDITS = tuple(
    Edit(op="append", content=name, support_count=count) for name, count in zip("abcd", (1, 3, 2, 3), strict=True)
)
PATCH = Patch(edits=EDITS, failure_patterns=(FailurePattern(description="d"),), fallback="merge: x")


def contents(patch: Patch) -> str:
    return "".join(edit.content for edit in patch.edits)


@pytest.mark.parametrize("budget", [4, None])
def test_within_the_budget_there_is_no_call(budget: int | None) -> None:
    optimizer = ScriptedOptimizer()
    assert select(optimizer, "# Skill", PATCH, budget, "") is PATCH
    single = Patch(edits=(Edit(op="rewrite", content="x"),))
    assert select(optimizer, "# Skill", single, budget, "") is single


@pytest.mark.parametrize(
    ("order", "kept"),
    [([3, 1, 0, 2], "db"), ([2, 2, 2], "ca"), ([9, -1, 3, 4, 0], "da"), ([*range(1_000_000, 0, -1)], "dc")],
    ids=["all", "one", "unknown", "million"],
)
def test_the_order_of_the_optimizer_decides(order: list[int], kept: str) -> None:
    optimizer = ScriptedOptimizer({"order": order})
    chosen = select(optimizer, "# Skill", PATCH, 2, "short rules win")
    assert contents(chosen) == kept
    assert (chosen.fallback, chosen.failure_patterns) == (PATCH.fallback, PATCH.failure_patterns)
    ((stage, prompt),) = optimizer.calls
    assert stage == "rank"
    assert prompt.endswith("\n\n<meta_skill>\nshort rules win\n</meta_skill>")
    assert (section(prompt, "skill"), section(prompt, "budget")) == ("# Skill", "2")
    assert [edit["index"] for edit in json_section(prompt, "edits")] == [0, 1, 2, 3]


@pytest.mark.parametrize("answer", [{"order": [4, -1, 99]}, unusable("names none")])
def test_an_unusable_answer_falls_back_to_support(answer: dict[str, list[int]] | Exception) -> None:
    chosen = select(ScriptedOptimizer(answer), "# Skill", PATCH, 3, "")
    assert contents(chosen) == "bdc"
    assert chosen.fallback.startswith("merge: x; rank: ")
    assert "names none" in chosen.fallback
    assert chosen.failure_patterns == PATCH.failure_patterns


def test_a_learning_rate_of_0_keeps_nothing_and_asks_nobody() -> None:
    chosen = select(ScriptedOptimizer(), "# Skill", PATCH, 0, "")
    assert (chosen.edits, chosen.failure_patterns) == ((), PATCH.failure_patterns)


@pytest.mark.parametrize(("budget", "kept"), [(4, "y"), (1, "y"), (None, "y"), (0, "")])
def test_of_rewrites_one_stays(budget: int | None, kept: str) -> None:
    rewrites = Patch(edits=(Edit(op="rewrite", content="x"), Edit(op="rewrite", content="y")))
    optimizer = ScriptedOptimizer({"order": [1, 0]})
    assert contents(select(optimizer, "# Skill", rewrites, budget, "")) == kept
    assert [section(prompt, "budget") for _, prompt in optimizer.calls] == (["1"] if kept else [])
