"""Anthropic's messages, asked plainly and through pydantic-ai: the same request, and the same reading of answers."""

import json
from typing import Any

import pytest

from skillopt_airflow.core.types import Message
from skillopt_airflow.rollout.plain_chat import request_body
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.gateway.scripted_provider import Reply
from tests.rollout.single_item import PLAIN
from tests.rollout.test_chat import BROKEN
from tests.rollout.test_chat_target import ASKED, LONGER, both
from tests.rollout.wire import says

ANTHROPIC = {"dialect": "anthropic", "model": "claude-sonnet-4-6"}


def document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(says("anthropic", "Eiffel").body), **changed}


def blocks(*content: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return document(content=list(content), **changed)


TEXT = {"type": "text", "text": "Eiffel"}
CITATION = {
    "type": "char_location",
    "cited_text": "a",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
    "file_id": None,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "plain": document(),
    "two texts": blocks(TEXT, {"type": "text", "text": " tower", "citations": None}),
    "thinking apart": blocks({"type": "thinking", "thinking": "Hm", "signature": "s"}, TEXT),
    "thinking hidden": blocks({"type": "redacted_thinking", "data": "x"}, TEXT),
    "thinking within": blocks({"type": "text", "text": "<think>Big\nBen</think>Eiffel"}),
    "thinking unclosed": blocks({"type": "text", "text": "so <think>Eiffel"}),
    "cut": document(stop_reason="max_tokens"),
    "cut before a word": blocks(stop_reason="max_tokens"),
    "stopped": document(stop_reason="stop_sequence"),
    "refused": document(stop_reason="refusal"),
    "paused": document(stop_reason="pause_turn"),
    "an ending of its own": document(stop_reason="eos"),
    "no ending": document(stop_reason=None),
    "said nothing": blocks(),
    "an empty text": blocks({"type": "text", "text": ""}),
    "cited": blocks(TEXT | {"citations": [CITATION]}),
    "called": blocks({"type": "tool_use", "id": "c", "name": "f", "input": {}}, stop_reason="tool_use"),
    "a number": blocks({"type": "text", "text": 7}),
    "joined token": blocks({"type": "text", "text": "<\u200d|im_end|>"}),
    "no id": document(id=None),
    "another role": document(role="user"),
    "no usage": document(usage=None),
    "half a usage": document(usage={"input_tokens": 4}),
    "negative usage": document(usage={"input_tokens": -4, "output_tokens": 2}),
    "cached": document(usage=document()["usage"] | {"cache_read_input_tokens": 5, "cache_creation_input_tokens": 7}),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_answer_is_understood_alike(answer: dict[str, Any]):
    (plainly, through), _ = both(Reply(body=json.dumps(answer).encode()), **ANTHROPIC)
    assert plainly == through


@pytest.mark.parametrize("reply", [reply for reply, _, _ in BROKEN])
def test_every_failure_has_the_same_words(reply: Reply):
    (plainly, through), _ = both(reply, **ANTHROPIC)
    assert plainly == through
    assert plainly.error


@pytest.mark.parametrize(
    "messages", [ASKED, LONGER, ASKED[1:], (*ASKED[:1], Message(role="system", content="Cite."), *ASKED[1:])]
)
@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-opus-4-7", "glm-4.6"])
def test_the_same_is_asked(messages: tuple[Message, ...], model: str):
    _, (plainly, through) = both(says("anthropic", "Eiffel"), messages, **ANTHROPIC | {"model": model})
    assert (plainly.path, plainly.body) == (through.path, through.body)
    assert "user-agent" not in plainly.headers, "it was not asked plainly"


@pytest.mark.parametrize("changed", [{"temperature": 0.5}, {"reasoning_effort": "low"}, {"thinking_budget": 1024}])
def test_what_some_models_refuse_is_not_asked_plainly(changed: dict[str, Any]):
    assert request_body(RolloutSettings(**PLAIN | ANTHROPIC), ASKED, {}) is not None
    assert request_body(RolloutSettings(**PLAIN | ANTHROPIC | changed), ASKED, {}) is None


def test_a_limit_above_that_of_a_model_is_lowered_to_it():
    changed = ANTHROPIC | {"model": "claude-haiku-4-5", "max_tokens": 70_000}
    _, (asked, through) = both(says("anthropic", "Eiffel"), **changed)
    assert asked.body["max_tokens"] == through.body["max_tokens"] == 64_000
