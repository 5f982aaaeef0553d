from typing import Any

import pytest
from scripted_optimizer import ScriptedOptimizer, rollout, section, unusable

from skillopt_airflow.core.types import Edit
from skillopt_airflow.optimizer.comparison import Comparison, compare
from skillopt_airflow.optimizer.slow_update import Guidance, guidance_edit, slow_update

COMPARISON = compare({"a": rollout("a", 0.0)}, {"a": rollout("a", 1.0)}, ["a"], "mixed")


def test_what_the_optimizer_is_shown() -> None:
    optimizer = ScriptedOptimizer({"guidance": "\n- new\n", "reason": "a improved"})
    guidance = slow_update(optimizer, "# Skill", "# Before", "former", COMPARISON, 50_000)
    assert guidance == Guidance(text="- new", reason="a improved")
    # It is written into its region.
    assert guidance_edit(guidance) == Edit(
        op="region", anchor="SLOW_UPDATE", content="- new", rationale="a improved", minibatches=("slow-update",)
    )
    ((stage, prompt),) = optimizer.calls
    assert stage == "slow_update"
    assert (section(prompt, "skill"), section(prompt, "guidance")) == ("# Skill", "former")
    assert section(prompt, "previous_skill") == "# Before"
    assert section(prompt, "comparison").startswith("# Improved")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"guidance": "<!-- SLOW_UPDATE_END -->\n", "reason": "x"}, "blank"),
        ({"guidance": "x" * 20_001, "reason": "x"}, "20,001 characters"),
        (unusable("refused"), "refused"),
    ],
)
def test_an_unusable_answer_leaves_the_former_guidance(answer: dict[str, Any] | Exception, why: str) -> None:
    guidance = slow_update(ScriptedOptimizer(answer), "# Skill", "# Before", "former", COMPARISON, 50_000)
    assert (guidance.text, guidance.reason) == ("former", "")
    assert guidance.fallback.startswith("slow_update: ")
    assert why in guidance.fallback


def test_without_a_compared_item_there_is_no_call() -> None:
    guidance = slow_update(ScriptedOptimizer(), "# Skill", "# Before", "former", Comparison(unscored=20), 50_000)
    assert (guidance.text, guidance.fallback) == ("former", "")
