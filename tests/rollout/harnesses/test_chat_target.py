"""Asked plainly, a target is told the same and understood as through pydantic-ai, whose adapters know every server."""

import asyncio
import json
from contextlib import aclosing
from typing import Any, get_args

import pytest
from pydantic_ai.models import KnownModelName
from pydantic_ai.profiles.openai import openai_model_profile

from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.rollout.harnesses.chat import ChatTarget
from skillopt_airflow.rollout.harnesses.conversation import Reply as Came
from skillopt_airflow.rollout.harnesses.plain_chat import MAX_BYTES, request_body
from skillopt_airflow.rollout.harnesses.target_model import TargetModel
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.gateway.scripted_provider import (
    Asked,
    Reply,
    ScriptedProvider,
    chat_document,
    completion,
    message_document,
    reply_of,
    response_document,
    response_message,
)
from tests.rollout.harnesses.test_chat import BROKEN
from tests.rollout.single_item import PLAIN
from tests.rollout.test_item_pictures import picture
from tests.rollout.wire import calls, cut_off, says

ASKED = (Message(role="system", content="Be short."), Message(role="user", content="[DOC] Qué <b>tower</b>?\n"))
LONGER = (
    *ASKED,
    Message(role="assistant", content="Big Ben"),
    Message(role="user", content="No."),
    Message(role="tool", content=""),
)
TOKENS = [
    *("<|im_start|>", "<｜User｜>", "<|turn>", "<turn|>", "<start_of_turn>", "<end_of_turn>", "[|user|]", "[e~["),
    *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "]~b]", "]~!b["),
]


CHAT: dict[str, Any] = {}
MESSAGES = {"dialect": "anthropic", "model": "claude-sonnet-4-6"}
RESPONSES = {"dialect": "openai", "model": "gpt-4o"}


def chat(**changed: Any) -> dict[str, Any]:
    return chat_document("Eiffel") | changed


def choice(finish_reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "Eiffel"} | message
    return chat(choices=[{"index": 0, "finish_reason": finish_reason, "message": said}])


def blocks(*content: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return message_document("end_turn", *content) | changed


def text(words: Any, **changed: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": []} | changed


def said(*content: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return response_message("") | {"content": list(content)} | changed


def response(**changed: Any) -> dict[str, Any]:
    return response_document(said(text("Eiffel"))) | changed


EIFFEL, NO_TEXT = {"type": "text", "text": "Eiffel"}, {"type": "text", "text": ""}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PLACE = {"start_index": 0, "end_index": 1, "title": "t", "url": "u"}
QUOTED = {"type": "char_location", "cited_text": "a", "document_index": 0, "document_title": None}
QUOTED |= {"start_char_index": 0, "end_char_index": 1, "file_id": None}
THOUGHT = {"type": "reasoning", "id": "t-1", "summary": [{"type": "summary_text", "text": "Hm"}]}
CHANCE = {"token": "E", "bytes": [69], "logprob": -0.1, "top_logprobs": []}
CACHED = {"cache_read_input_tokens": 5, "cache_creation_input_tokens": 7}
DETAILS = {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 2}}
ENDINGS = ("max_tokens", "stop_sequence", "refusal", "pause_turn", "eos", None)
OF_CHAT: dict[str, dict[str, Any]] = {
    "plain": choice(),
    "cut": choice("length"),
    "cut before a word": choice("length", content=None, reasoning_content="Hm"),
    "thinking apart": choice(reasoning="Hm", reasoning_content="Hm"),
    "thinking within": choice(content="<think>Big\nBen</think>Eiffel <think>x</think>tower"),
    "thinking unclosed": choice(content="so <think>Eiffel <think>tower"),
    "thinking closed alone": choice(content="Big Ben?</think>\nEiffel"),
    "thinking closed before": choice(content="a</think>b<think>c</think>d"),
    "no ending": choice(None),
    "an ending of its own": choice("eos"),
    "called": choice("tool_calls", content=None, tool_calls=[CALL]),
    "filtered": choice("content_filter"),
    "filtered for its kind": choice("content_filter: SAFETY", content=None),
    "filtered without a message": chat(choices=[{"index": 0, "finish_reason": "content_filter: RECITATION"}]),
    "broken off": choice("insufficient_system_resource"),
    "refused": choice(refusal="I will not"),
    "cited": choice(annotations=[{"type": "url_citation", "url_citation": PLACE}]),
    "in parts": choice(content=[EIFFEL]),
    "a number": choice(content=7),
    "another role": choice(role="user"),
    "joined token": choice(content="<\u200d|im_end|>"),
    "half a character": choice(content="\ud800"),
    "no choices": chat(choices=[]),
    "two choices": chat(choices=choice()["choices"] + choice(content="Big Ben")["choices"]),
    "no id": chat(id=None),
    "no date": chat(created=None),
    "another kind": chat(object="completion"),
    "no usage": chat(usage=None),
    "half a usage": chat(usage={"prompt_tokens": 4}),
    "no tokens": chat(usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
    "detailed usage": chat(usage=chat()["usage"] | {"prompt_tokens_details": {"cached_tokens": 5}}),
}
OF_MESSAGES: dict[str, dict[str, Any]] = {
    "plain": blocks(EIFFEL),
    "two texts": blocks(EIFFEL, {"type": "text", "text": " tower", "citations": None}),
    "thinking apart": blocks({"type": "thinking", "thinking": "Hm", "signature": "s"}, EIFFEL),
    "thinking hidden": blocks({"type": "redacted_thinking", "data": "x"}, EIFFEL),
    **{f"ended by {reason}": blocks(EIFFEL, stop_reason=reason) for reason in ENDINGS},
    "cut before a word": blocks(stop_reason="max_tokens"),
    "said nothing": blocks(),
    "an empty text": blocks(NO_TEXT),
    "cited": blocks(EIFFEL | {"citations": [QUOTED]}),
    "called": blocks({"type": "tool_use", "id": "c", "name": "f", "input": {}}, stop_reason="tool_use"),
    "a number": blocks({"type": "text", "text": 7}),
    "no id": blocks(EIFFEL, id=None),
    "another role": blocks(EIFFEL, role="user"),
    "no usage": blocks(EIFFEL, usage=None),
    "half a usage": blocks(EIFFEL, usage={"input_tokens": 4}),
    "negative usage": blocks(EIFFEL, usage={"input_tokens": -4, "output_tokens": 2}),
    "cached": blocks(EIFFEL, usage=blocks()["usage"] | CACHED),
}
OF_RESPONSES: dict[str, dict[str, Any]] = {
    "plain": response(),
    "two texts": response_document(said(text("Eiffel"), text(" tower"))),
    "two messages": response_document(said(text("Eiffel")), said(text(" tower"), id="m-2")),
    "thinking apart": response_document(THOUGHT, said(text("Eiffel"))),
    "cut": json.loads(cut_off("openai", "Eif").body),
    "cut before a word": json.loads(cut_off("openai", "").body),
    "cut by a filter": response(status="incomplete", incomplete_details={"reason": "content_filter"}),
    "cut for no reason": response(status="incomplete"),
    "failed": response(status="failed", error={"code": "server_error", "message": "no"}),
    "cancelled": response(status="cancelled"),
    "no status": response(status=None),
    "refused": response_document(said({"type": "refusal", "refusal": "I will not"})),
    "called": json.loads(calls("openai", "f", {}).body),
    "cited": response_document(said(text("Eiffel", annotations=[{"type": "url_citation"} | PLACE]))),
    "with chances": response_document(said(text("Eiffel", logprobs=[CHANCE]))),
    "an empty text": response_document(said(text(""))),
    "said nothing": response_document(),
    "a number": response_document(said(text(7))),
    "no id": response(id=None),
    "no date": response(created_at=None),
    "another kind": response(object="completion"),
    "no usage": response(usage=None),
    "half a usage": response(usage={"input_tokens": 4}),
    "cached": response(usage=response()["usage"] | DETAILS),
}
ANSWERS = [
    pytest.param(settings, answer, id=f"{settings.get('dialect', 'chat')} {name}")
    for settings, answers in ((CHAT, OF_CHAT), (MESSAGES, OF_MESSAGES), (RESPONSES, OF_RESPONSES))
    for name, answer in answers.items()
]


def of_both(gateway: str, messages: tuple[Message, ...] = ASKED, **changed: Any) -> tuple[Came, Came]:
    """Return what each of the two made of the gateway's answer."""
    settings = RolloutSettings(**PLAIN | changed)

    async def main() -> tuple[Came, Came]:
        async with aclosing(ChatTarget(settings, gateway)) as target, aclosing(TargetModel(settings, gateway)) as model:
            return await target.ask(messages, {}), await model.ask(messages, {})

    return asyncio.run(main())


def both(
    reply: Reply, messages: tuple[Message, ...] = ASKED, **changed: Any
) -> tuple[tuple[Came, Came], tuple[Asked, Asked]]:
    """Return what each of the two made of the same answer, and what each asked."""
    with ScriptedProvider(lambda asked: reply) as provider:
        came = of_both(provider.base_url.removesuffix("/v1"), messages, **changed)
    first, second = provider.requests
    return came, (first, second)


@pytest.mark.parametrize(("settings", "answer"), ANSWERS)
def test_every_answer_is_understood_alike(settings: dict[str, Any], answer: dict[str, Any]):
    (plainly, through), _ = both(reply_of(answer), **settings)
    assert plainly == through


@pytest.mark.parametrize("settings", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("reply", [reply for reply, _, _ in BROKEN])
def test_every_failure_has_the_same_words(reply: Reply, settings: dict[str, Any]):
    (plainly, through), _ = both(reply, **settings)
    assert plainly == through
    assert plainly.error


@pytest.mark.parametrize(
    "messages", [ASKED, LONGER, ASKED[1:], (*ASKED[:1], Message(role="system", content="Cite."), *ASKED[1:])]
)
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 0.7, "reasoning_effort": "low"},
        {"reasoning_effort": "off"},
        {"reasoning_effort": "on", "model": "Qwen/Qwen3-8B"},
        {"model": "gpt-4o-mini", "temperature": 1.0},
        {"model": "gpt-oss:20b", "temperature": 1.0},
        MESSAGES,
        MESSAGES | {"model": "claude-opus-4-7"},
        MESSAGES | {"model": "glm-4.6"},
        RESPONSES | {"temperature": 1.0, "reasoning_effort": "low"},
        RESPONSES | {"model": "gpt-oss:20b", "temperature": 0.0},
    ],
)
def test_the_same_is_asked(messages: tuple[Message, ...], settings: dict[str, Any]):
    _, (plainly, through) = both(says(settings.get("dialect", "openai-chat"), "Eiffel"), messages, **settings)
    assert (plainly.path, plainly.body) == (through.path, through.body)
    assert "user-agent" not in plainly.headers, "it was not asked plainly"


def test_a_limit_above_that_of_a_model_is_lowered_to_it():
    changed = MESSAGES | {"model": "claude-haiku-4-5", "max_tokens": 70_000}
    _, (asked, through) = both(says("anthropic", "Eiffel"), **changed)
    assert asked.body["max_tokens"] == through.body["max_tokens"] == 64_000


@pytest.mark.parametrize("token", TOKENS)
def test_what_a_template_would_take_for_its_own_is_broken_alike(token: str):
    messages = (*ASKED, Message(role="user", content=f"Quoted: {token}system"))
    _, (plainly, through) = both(completion("Eiffel"), messages)
    assert plainly.body == through.body
    assert token not in plainly.raw.decode()


def test_a_model_that_takes_other_settings_is_not_asked_plainly():
    """What pydantic-ai knows of OpenAI's models; a family that is new there fails here."""
    names = {str(name).partition(":")[2] for name in get_args(KnownModelName.__value__) if "openai" in str(name)}
    names |= {"gpt-4o", "gpt-4.1-mini", "gpt-5-mini", "gpt-5.1", "o1-mini", "o3", "o4-mini"}
    particular = {
        name
        for name in names
        if (profile := openai_model_profile(name)).get("openai_supports_reasoning")
        or profile.get("openai_system_prompt_role")
    }
    assert len(particular) >= 10
    plain = {name for name in names if request_body(RolloutSettings(**PLAIN | {"model": name}), ASKED, {}) is not None}
    assert not plain & particular
    assert {"gpt-4o", "gpt-4.1-mini"} <= plain


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        (CHAT, "x" * MAX_BYTES),
        (MESSAGES | {"temperature": 0.5}, "?"),
        (MESSAGES | {"reasoning_effort": "low"}, "?"),
        (MESSAGES | {"reasoning_effort": 1024}, "?"),
        (RESPONSES | {"model": "gpt-5"}, "?"),
        (RESPONSES, f"What is on {mark('a.png')}?"),
    ],
)
def test_what_some_models_refuse_and_what_is_long_or_has_pictures_is_not_asked_plainly(
    settings: dict[str, Any], content: str
):
    messages = [Message(role="user", content=content)]
    assert request_body(RolloutSettings(**PLAIN | settings), messages, {"a.png": picture("PNG")}) is None


@pytest.mark.parametrize("gateway", ["http://127.0.0.1:1", "/nowhere/model.sock"])
def test_without_a_gateway_the_words_are_the_same(gateway: str):
    plainly, through = of_both(gateway)
    assert plainly == through
    assert plainly.error == "Connection error."
