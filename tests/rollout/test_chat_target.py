"""Asked plainly, a target is told the same and understood as through pydantic-ai, whose adapters know every server."""

import asyncio
import json
from contextlib import aclosing
from typing import Any, get_args

import pytest
from pydantic_ai.models import KnownModelName
from pydantic_ai.profiles.openai import openai_model_profile

from skillopt_airflow.core.types import Message
from skillopt_airflow.rollout.chat import ChatTarget
from skillopt_airflow.rollout.plain_chat import MAX_BYTES, request_body
from skillopt_airflow.rollout.replies import TargetModel
from skillopt_airflow.rollout.reply import Reply as Came
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion
from tests.rollout.single_item import PLAIN
from tests.rollout.test_chat import BROKEN

ASKED = (Message(role="system", content="Be short."), Message(role="user", content="[DOC] Qué <b>tower</b>?\n"))
LONGER = (
    *ASKED,
    Message(role="assistant", content="Big Ben"),
    Message(role="user", content="No."),
    Message(role="tool", content=""),
)
TOKENS = ("<|im_start|>", "<｜User｜>", "<|turn>", "<turn|>", "<start_of_turn>", "<end_of_turn>", "[|user|]", "[e~[")
TOKENS += (
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "]~b]",
    "]~!b[",
)


def document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(completion("Eiffel").body), **changed}


def choice(finish_reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "Eiffel"} | message
    return document(choices=[{"index": 0, "finish_reason": finish_reason, "message": said}])


CITATION = {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 1, "title": "t", "url": "u"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWERS: dict[str, dict[str, Any]] = {
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
    "filtered without a message": document(choices=[{"index": 0, "finish_reason": "content_filter: RECITATION"}]),
    "broken off": choice("insufficient_system_resource"),
    "refused": choice(refusal="I will not"),
    "cited": choice(annotations=[CITATION]),
    "in parts": choice(content=[{"type": "text", "text": "Eiffel"}]),
    "a number": choice(content=7),
    "another role": choice(role="user"),
    "joined token": choice(content="<\u200d|im_end|>"),
    "half a character": choice(content="\ud800"),
    "no choices": document(choices=[]),
    "two choices": document(choices=choice()["choices"] + choice(content="Big Ben")["choices"]),
    "no id": document(id=None),
    "no date": document(created=None),
    "another kind": document(object="completion"),
    "no usage": document(usage=None),
    "half a usage": document(usage={"prompt_tokens": 4}),
    "no tokens": document(usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
    "detailed usage": document(
        usage=document()["usage"]
        | {"prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 2}}
    ),
}


def both(
    reply: Reply, messages: tuple[Message, ...] = ASKED, **changed: Any
) -> tuple[tuple[Came, Came], tuple[Asked, Asked]]:
    """Return what each of the two made of the same answer, and what each asked."""
    settings = RolloutSettings(**PLAIN | changed)

    async def main(gateway: str) -> tuple[Came, Came]:
        async with aclosing(ChatTarget(settings, gateway)) as target, aclosing(TargetModel(settings, gateway)) as model:
            return await target.ask(messages, {}), await model.ask(messages, {})

    with ScriptedProvider(lambda asked: reply) as provider:
        came = asyncio.run(main(provider.base_url.removesuffix("/v1")))
    first, second = provider.requests
    return came, (first, second)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_answer_is_understood_alike(answer: dict[str, Any]):
    (plainly, through), _ = both(Reply(body=json.dumps(answer).encode()))
    assert plainly == through


@pytest.mark.parametrize("reply", [reply for reply, _, _ in BROKEN])
def test_every_failure_has_the_same_words(reply: Reply):
    (plainly, through), _ = both(reply)
    assert plainly == through
    assert plainly.error


@pytest.mark.parametrize("messages", [ASKED, LONGER])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"temperature": 0.0, "seed": 0},
        {"temperature": 0.7, "seed": 7, "reasoning_effort": "low", "thinking": "off"},
        {"thinking": "on", "model": "Qwen/Qwen3-8B"},
        {"model": "gpt-4o-mini", "temperature": 1.0},
        {"model": "gpt-oss:20b", "temperature": 1.0},
    ],
)
def test_the_same_is_asked(messages: tuple[Message, ...], changed: dict[str, Any]):
    assert request_body(RolloutSettings(**PLAIN | changed), messages, {}) is not None
    _, (plainly, through) = both(completion("Eiffel"), messages, **changed)
    assert (plainly.path, plainly.body) == (through.path, through.body)
    assert "user-agent" not in plainly.headers, "it was not asked plainly"


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


def test_a_very_long_request_is_not_asked_plainly():
    messages = [Message(role="user", content="x" * MAX_BYTES)]
    assert request_body(RolloutSettings(**PLAIN), messages, {}) is None


@pytest.mark.parametrize("gateway", ["http://127.0.0.1:1", "/nowhere/model.sock"])
def test_without_a_gateway_the_words_are_the_same(gateway: str):
    settings = RolloutSettings(**PLAIN)

    async def main() -> tuple[Came, Came]:
        async with aclosing(ChatTarget(settings, gateway)) as target, aclosing(TargetModel(settings, gateway)) as model:
            return await target.ask(ASKED, {}), await model.ask(ASKED, {})

    plainly, through = asyncio.run(main())
    assert plainly == through
    assert plainly.error == "Connection error."
