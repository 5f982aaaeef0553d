"""Every stage against every kind of malformed answer, through the connection that real providers answer over."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from scripted_optimizer import ScriptedOptimizer, rollout

from skillopt_airflow.core.config.training_groups import OptimizerGroup
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.run.state import StepBuffer
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.types import Edit, Note, Patch, Score
from skillopt_airflow.models.optimizer import PydanticAIOptimizer
from skillopt_airflow.optimizer.aggregate import aggregate
from skillopt_airflow.optimizer.comparison import compare, slow_update
from skillopt_airflow.optimizer.deep_reflect import questions
from skillopt_airflow.optimizer.learning_rate import learning_rate, select
from skillopt_airflow.optimizer.meta_skill import EpochStep, meta_reflect, meta_skill
from skillopt_airflow.optimizer.reflect import Minibatch, ReflectContext, reflect
from skillopt_airflow.optimizer.rewrite import consolidate, rewrite

pytestmark = pytest.mark.slow

SKILL = "# Skill\n\n- one rule\n\n<!-- SLOW_UPDATE_START -->\nguidance\n<!-- SLOW_UPDATE_END -->\n"
SCORES = [Score(hard=0, soft=0)]
CONTEXT = ReflectContext(skill=SKILL, budget=4, buffer=StepBuffer(), meta_skill="", rounds=1, room=50_000)
FAILURES = Minibatch(source_type="failure", index=0, rollouts=(rollout("a"),))
EDITS = (Edit(op="append", content="x", minibatches=("failure-0",)), Edit(op="append", content="y"))
PATCHES = [Patch(edits=(edit,)) for edit in EDITS]
COMPARISON = compare({"a": rollout("a", 0.0)}, {"a": rollout("a", 1.0)}, ["a"], "mixed")
STEPS = [EpochStep(step=1, action=Action.ACCEPT, score_before=0.0, score_after=1.0, edits=EDITS)]
NOTES = [Note(text=text, minibatch="failure-0") for text in "abc"]


def reflected(rules: OptimizerGroup) -> Callable[[Optimizer], str]:
    return lambda optimizer: reflect(optimizer, CONTEXT, FAILURES, rules).fallback


STAGES: dict[str, Callable[[Optimizer], str]] = {
    "reflect": reflected(OptimizerGroup()),
    "reflect_skill_aware": reflected(OptimizerGroup(use_skill_aware_reflection=True)),
    "reflect_rewrite": reflected(OptimizerGroup(skill_update_mode="full_rewrite_minibatch")),
    "merge": lambda optimizer: aggregate(optimizer, SKILL, PATCHES, 8, 1, "").fallback,
    "rank": lambda optimizer: select(optimizer, SKILL, Patch(edits=EDITS), 1, "").fallback,
    "learning_rate": lambda optimizer: (
        learning_rate(optimizer, SKILL, Patch(edits=EDITS), 4, SCORES, StepBuffer(), "").fallback
    ),
    "rewrite": lambda optimizer: rewrite(optimizer, SKILL, Patch(edits=EDITS), StepBuffer()).fallback,
    "deep_reflect": lambda optimizer: questions(optimizer, SKILL, [rollout("a")], 50_000)[1],
    "consolidate": lambda optimizer: consolidate(optimizer, SKILL, NOTES, 1)[1],
    "slow_update": lambda optimizer: slow_update(optimizer, SKILL, SKILL, "former", COMPARISON, 50_000).fallback,
    "meta_skill": lambda optimizer: meta_skill(optimizer, "former", SKILL, SKILL, COMPARISON, STEPS, 50_000)[1],
    "meta_reflect": lambda optimizer: meta_reflect(optimizer, SKILL, STEPS, 4).fallback,
}
HALF = "\ud83d"
HALF_EDITS = {"edits": [{"op": "append", "content": HALF, "sources": [0]}], "failure_patterns": [{"description": HALF}]}
HALF_ANSWERS: dict[str, dict[str, Any]] = {
    "reflect": HALF_EDITS,
    "reflect_skill_aware": {"notes": [HALF]} | HALF_EDITS,
    "reflect_rewrite": {"body": HALF},
    "merge": HALF_EDITS,
    "rank": {"order": [0]},
    "learning_rate": {"learning_rate": 9, "reason": HALF},
    "rewrite": {"body": HALF},
    "deep_reflect": {"questions": [{"item": HALF, "question": "?"}, {"item": 1, "question": HALF}]},
    "consolidate": {"notes": [{"text": HALF, "sources": [0]}]},
    "slow_update": {"guidance": HALF, "reason": HALF},
    "meta_skill": {"memory": HALF},
    "meta_reflect": HALF_EDITS,
}
"""The field that each stage requires comes first."""
WRONG_TYPES = {
    "an object": {"a": 1},
    "null": None,
    "a fraction": 0.5,
    "a list of null": [None],
    "an unknown op": [{"op": "explode", "content": "x", "sources": [0]}],
    "a rewrite of the document": [{"op": "rewrite", "content": "x", "sources": [0]}],
    "a region": [{"op": "region", "anchor": "SLOW_UPDATE", "content": "x", "sources": [0]}],
}


def fallback_of(stage: str, *parts: TextPart | ToolCallPart) -> str:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not parts:
            raise ContentFilterError("filtered")
        # Else pydantic-ai counts the words of an answer for seconds.
        return ModelResponse(parts=list(parts), usage=RequestUsage(input_tokens=1, output_tokens=1))

    with PydanticAIOptimizer(FunctionModel(respond), lambda call: None) as optimizer:
        return STAGES[stage](optimizer)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("value", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_a_wrong_type(stage: str, value: object) -> None:
    fallback = fallback_of(stage, ToolCallPart(f"{stage}_result", {next(iter(HALF_ANSWERS[stage])): value}))
    # Where a field may be missing, null says the same.
    is_understood = value is None and stage in ("reflect", "reflect_skill_aware", "meta_reflect")
    assert not fallback if is_understood else fallback.startswith(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_provider_that_does_not_answer_is_no_fallback(stage: str) -> None:
    with pytest.raises(ModelError, match="503"):
        STAGES[stage](ScriptedOptimizer(ModelError("503")))


@pytest.mark.parametrize(("stage", "answer"), HALF_ANSWERS.items())
def test_half_of_a_surrogate_pair_is_replaced(stage: str, answer: dict[str, Any]) -> None:
    # As JSON text; and as an object, where a provider's client has parsed the JSON.
    for arguments in (json.dumps(answer), answer):
        fallback = fallback_of(stage, ToolCallPart(f"{stage}_result", arguments))
        fallback.encode()
        assert "retries" not in fallback


@pytest.mark.parametrize("stage", STAGES)
def test_a_refusal_in_words_by_a_filter_and_by_another_tool(stage: str) -> None:
    assert fallback_of(stage, TextPart("I cannot help with that.")).startswith(stage)
    assert fallback_of(stage).startswith(stage)
    assert fallback_of(stage, ToolCallPart("bash", {"command": "true"})).startswith(stage)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("answer", [{}, {"analysis": "fine"}, {"patch": {}}, {"patch": {"changes": []}}])
def test_an_object_without_any_key_that_was_asked_for(stage: str, answer: dict[str, object]) -> None:
    assert fallback_of(stage, ToolCallPart(f"{stage}_result", answer)).startswith(stage)


@pytest.mark.parametrize("stage", ["merge", "rank", "consolidate"])
def test_an_empty_list_where_something_has_to_be_said(stage: str) -> None:
    assert fallback_of(stage, ToolCallPart(f"{stage}_result", {next(iter(HALF_ANSWERS[stage])): []})).startswith(stage)
