from typing import Any

import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, section, unusable

from skillopt_airflow.core.buffer import BufferEntry, StepBuffer
from skillopt_airflow.core.types import Edit, Patch, Score
from skillopt_airflow.optimizer.learning_rate import ChosenRate, learning_rate

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
