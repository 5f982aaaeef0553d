"""OpenAI's responses, asked plainly and through pydantic-ai: the same request, and the same reading of answers."""

import json
from typing import Any

import pytest

from skillopt_airflow.core.pictures import mark
from skillopt_airflow.core.types import Message
from skillopt_airflow.rollout.plain_chat import request_body
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.gateway.scripted_provider import Reply
from tests.rollout.single_item import PLAIN
from tests.rollout.test_chat import BROKEN
from tests.rollout.test_chat_target import ASKED, LONGER, both
from tests.rollout.test_item_pictures import picture
from tests.rollout.wire import calls, cut_off, says

RESPONSES = {"dialect": "openai", "model": "gpt-4o"}


def document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(says("openai", "Eiffel").body), **changed}


def said(*content: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {"type": "message", "id": "m-1", "role": "assistant", "status": "completed"} | {
        "content": list(content),
        **changed,
    }


def text(words: str, **changed: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": []} | changed


def output(*outputs: dict[str, Any]) -> dict[str, Any]:
    return document(output=list(outputs))


THOUGHT = {"type": "reasoning", "id": "t-1", "summary": [{"type": "summary_text", "text": "Hm"}]}
CITATION = {"type": "url_citation", "start_index": 0, "end_index": 1, "title": "t", "url": "u"}
CHANCE = {"token": "E", "bytes": [69], "logprob": -0.1, "top_logprobs": []}
ANSWERS: dict[str, dict[str, Any]] = {
    "plain": document(),
    "two texts": output(said(text("Eiffel"), text(" tower"))),
    "two messages": output(said(text("Eiffel")), said(text(" tower"), id="m-2")),
    "thinking apart": output(THOUGHT, said(text("Eiffel"))),
    "thinking within": output(said(text("<think>Big\nBen</think>Eiffel"))),
    "thinking closed alone": output(said(text("Big Ben?</think>\nEiffel"))),
    "thinking unclosed": output(said(text("so <think>Eiffel"))),
    "cut": json.loads(cut_off("openai", "Eif").body),
    "cut before a word": json.loads(cut_off("openai", "").body),
    "cut by a filter": document(status="incomplete", incomplete_details={"reason": "content_filter"}),
    "cut for no reason": document(status="incomplete"),
    "failed": document(status="failed", error={"code": "server_error", "message": "no"}),
    "cancelled": document(status="cancelled"),
    "no status": document(status=None),
    "refused": output(said({"type": "refusal", "refusal": "I will not"})),
    "called": json.loads(calls("openai", "f", {}).body),
    "cited": output(said(text("Eiffel", annotations=[CITATION]))),
    "with chances": output(said(text("Eiffel", logprobs=[CHANCE]))),
    "an empty text": output(said(text(""))),
    "said nothing": output(),
    "a number": output(said(text("x", text=7))),
    "joined token": output(said(text("<\u200d|im_end|>"))),
    "no id": document(id=None),
    "no date": document(created_at=None),
    "another kind": document(object="completion"),
    "no usage": document(usage=None),
    "half a usage": document(usage={"input_tokens": 4}),
    "cached": document(
        usage=document()["usage"]
        | {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 2}}
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_answer_is_understood_alike(answer: dict[str, Any]):
    (plainly, through), _ = both(Reply(body=json.dumps(answer).encode()), **RESPONSES)
    assert plainly == through


@pytest.mark.parametrize("reply", [reply for reply, _, _ in BROKEN])
def test_every_failure_has_the_same_words(reply: Reply):
    (plainly, through), _ = both(reply, **RESPONSES)
    assert plainly == through
    assert plainly.error


@pytest.mark.parametrize("messages", [ASKED, LONGER, ASKED[1:]])
@pytest.mark.parametrize(
    "changed", [{}, {"temperature": 0.0}, {"temperature": 1.0, "reasoning_effort": "low"}, {"model": "gpt-oss:20b"}]
)
def test_the_same_is_asked(messages: tuple[Message, ...], changed: dict[str, Any]):
    _, (plainly, through) = both(says("openai", "Eiffel"), messages, **RESPONSES | changed)
    assert (plainly.path, plainly.body) == (through.path, through.body)
    assert "user-agent" not in plainly.headers, "it was not asked plainly"


def test_models_that_think_and_pictures_are_left_to_pydantic_ai():
    assert request_body(RolloutSettings(**PLAIN | RESPONSES | {"model": "gpt-5"}), ASKED, {}) is None
    shown = [Message(role="user", content=f"What is on {mark('a.png')}?")]
    pictures = {"a.png": picture("PNG")}
    assert request_body(RolloutSettings(**PLAIN | RESPONSES), shown, pictures) is None
