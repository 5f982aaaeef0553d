from typing import Any

import pytest
from scripted_optimizer import ScriptedOptimizer, json_section, rollout, section, unusable

from skillopt_airflow.core.values.types import Edit, Patch
from skillopt_airflow.optimizer.comparison import Comparison, compare
from skillopt_airflow.optimizer.meta_skill import EpochStep, Memory, meta_reflect
from skillopt_airflow.optimizer.meta_skill import meta_skill as whole_meta_skill

COMPARISON = compare({"a": rollout("a", 1.0)}, {"a": rollout("a", 0.0)}, ["a"], "mixed")
RULE = {"op": "append", "anchor": "", "content": "<rule>"}
SHOWN = [
    {"step": 1, "action": "reject", "score_before": 0.5, "score_after": 0.0, "interval": [-0.9, 0.1], "edits": [RULE]},
    {"step": 2, "action": "indecisive", "score_before": 0.5, "score_after": None, "interval": None, "edits": []},
]
STEPS = [
    EpochStep.model_validate(SHOWN[0] | {"edits": [RULE | {"rationale": "why"}]}),
    EpochStep.model_validate(SHOWN[1]),
]


def meta_skill(*asked: Any) -> Memory:
    return whole_meta_skill(*asked, 50_000)


SKILL = "# Skill\n<!-- SLOW_UPDATE_START -->\nguidance\n<!-- SLOW_UPDATE_END -->"


def test_what_the_memory_is_written_from() -> None:
    optimizer = ScriptedOptimizer({"memory": " short rules win\n"}, {"memory": "x"})
    assert meta_skill(optimizer, "former", "# Now", "# Before", COMPARISON, STEPS) == Memory(text="short rules win")
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "memory")) == ("meta_skill", "former")
    assert section(prompt, "comparison").startswith("# Regressed")
    assert json_section(prompt, "epoch_steps") == SHOWN
    assert (section(prompt, "skill"), section(prompt, "previous_skill")) == ("# Now", "# Before")
    # A skill that the epoch left as it was is shown once.
    meta_skill(optimizer, "", "# Now", "# Now", COMPARISON, STEPS)
    prompt = optimizer.calls[1][1]
    assert prompt.count("# Now") == 1
    assert "<previous_skill>" not in prompt


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"memory": ""}, "blank"), ({"memory": "x" * 10_000_000}, "10,000,000"), (unusable("refused"), "refused")],
)
def test_a_miss_keeps_the_former_memory(answer: dict[str, Any] | Exception, why: str) -> None:
    kept = meta_skill(ScriptedOptimizer(answer), "former", "# Now", "# Before", COMPARISON, STEPS)
    assert kept.text == "former"
    assert kept.fallback.startswith("meta_skill: ")
    assert why in kept.fallback


def test_nothing_to_learn_from_needs_no_call() -> None:
    assert meta_skill(ScriptedOptimizer(), "former", "# Now", "# Before", Comparison(), []) == Memory(text="former")
    assert meta_reflect(ScriptedOptimizer(), SKILL, [], 2) == Patch()
    # For the memory one of the two is enough.
    for comparison, steps in ((COMPARISON, []), (Comparison(), STEPS)):
        assert meta_skill(ScriptedOptimizer({"memory": "m"}), "", "# Now", "# Before", comparison, steps).text == "m"


def test_meta_reflection_proposes_edits_from_the_epoch() -> None:
    optimizer = ScriptedOptimizer({"edits": [{"op": "append", "content": name} for name in "abc"]})
    patch = meta_reflect(optimizer, SKILL, STEPS, 2)
    assert patch.edits == tuple(
        Edit(op="append", content=name, source_type="failure", minibatches=("meta-reflect",)) for name in "ab"
    )
    assert patch.fallback == "meta_reflect: 3 edits proposed, 2 allowed"
    ((stage, prompt),) = optimizer.calls
    assert (stage, section(prompt, "skill"), section(prompt, "budget")) == ("meta_reflect", SKILL, "2")
    assert json_section(prompt, "epoch_steps") == SHOWN


@pytest.mark.parametrize(
    ("answer", "fallback"),
    [
        ({}, ""),
        (unusable("refused"), "meta_reflect: refused"),
        ({"edits": [{"op": "delete", "anchor": "guidance"}]}, "meta_reflect: edit 1 has its anchor in a protected"),
    ],
)
def test_meta_reflection_without_a_usable_edit_proposes_none(answer: dict[str, Any] | Exception, fallback: str) -> None:
    patch = meta_reflect(ScriptedOptimizer(answer), SKILL, STEPS, 2)
    assert patch.model_copy(update={"fallback": ""}) == Patch()
    assert patch.fallback.startswith(fallback)
    assert bool(patch.fallback) == bool(fallback)
