"""The gateway's way to a provider with a wire format of its own, with Bedrock's as the example."""

import asyncio
import base64
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import NoCredentialsError
from pydantic import SecretStr
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from skillopt_airflow.core.values.failure_reasons import CODES
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway import translation
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.retries import open_backend, tokens_of
from skillopt_airflow.gateway.upstream import Upstream
from tests.core.provider_rows import ENDINGS, ERRORS, Row
from tests.gateway import dialects
from tests.gateway.conftest import Serve
from tests.gateway.gateway_rig import Hanging, Rig
from tests.gateway.scripted_provider import Asked, Document, ScriptedProvider, completion, failure
from tests.gateway.through_backend import ask

NOVA = "amazon.nova-lite-v1:0"
CLAUDE = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
SIGNED = "AWS4-HMAC-SHA256 Credential=AKIATEST/"
USER: Document = {"role": "user", "content": "The capital of France?"}


def bedrock(address: str, model: str = NOVA) -> Upstream:
    arguments = {
        "region_name": "eu-west-1",
        "base_url": address,
        "aws_access_key_id": "AKIATEST",
        "aws_secret_access_key": "aws-secret",
    }
    return Upstream(
        conn_id="aws_test",
        dialect="openai-chat",
        base_url="",
        model=model,
        provider="bedrock",
        arguments=SecretStr(json.dumps(arguments)),
    )


def send(upstream: Upstream, *, timeout: float = 5, **body: Any) -> httpx.Response:
    asked = {"model": upstream.model, "messages": [USER], "max_tokens": 99} | body
    return sent_in_turn(upstream, lambda _: json.dumps(asked).encode(), times=1, timeout=timeout)[0]


def sent_in_turn(
    upstream: Upstream, body: Callable[[list[httpx.Response]], bytes], times: int, timeout: float = 5
) -> list[httpx.Response]:
    """The answers of one backend to bodies that may depend on the answers before."""

    async def converse() -> list[httpx.Response]:
        backend, answers = open_backend(upstream, timeout), list[httpx.Response]()
        try:
            for _ in range(times):
                answers.append(await backend.send(body(answers), {"authorization": "Bearer sandbox"}))
        finally:
            await backend.aclose()
        return answers

    return asyncio.run(converse())


TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def with_a_result(upstream: Upstream, **changed: Any) -> list[httpx.Response]:
    """The answers to a question and to the result of the tool that the first one calls.

    `question` and `word` replace what the second request repeats of the question and of the call.
    """

    def body(answers: list[httpx.Response]) -> bytes:
        messages: list[Document] = [USER]
        if answers:
            said = answers[0].json()["choices"][0]["message"]
            [call] = said["tool_calls"]
            if changed:
                call["function"]["arguments"] = json.dumps({"word": changed["word"]})
                messages = [{"role": "user", "content": changed["question"]}]
                said = {"role": "assistant", "content": None, "tool_calls": [call]}
            messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": "a city"}]
        asked = {"model": upstream.model, "max_tokens": 4096, "tools": [TOOL], "reasoning_effort": "low"}
        return json.dumps(asked | {"messages": messages}).encode()

    return sent_in_turn(upstream, body, times=2)


@pytest.fixture
def server(provider: Serve) -> ScriptedProvider:
    return provider(dialects.bedrock(NOVA, SIGNED))


def test_a_completion(server: ScriptedProvider) -> None:
    completion = send(bedrock(server.address)).json()
    (choice,) = completion["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Paris"}
    assert choice["finish_reason"] == "stop"
    assert (completion["object"], completion["model"]) == ("chat.completion", NOVA)
    assert completion["usage"] == {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_every_role_and_a_text_in_pieces(server: ScriptedProvider) -> None:
    pieces = [{"type": "text", "text": "the "}, {"type": "text", "text": "skill"}]
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "Paris"}'}}
    tool = {"type": "function", "function": {"name": "look_up", "description": "d", "parameters": {"type": "object"}}}
    messages = [
        {"role": "system", "content": pieces},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a city"},
        {"role": "assistant", "content": "Paris", "tool_calls": None},
        {"role": "user", "content": "Why?"},
    ]
    assert send(bedrock(server.address), messages=messages, tools=[tool], stop="END", top_p=0.5).status_code == 200
    sent = server.last.body
    assert sent["system"] == [{"text": "the skill"}]
    said = [(turn["role"], list(turn["content"][0])) for turn in sent["messages"]]
    assert said == [
        ("user", ["text"]),
        ("assistant", ["toolUse"]),
        ("user", ["toolResult"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
    assert sent["messages"][1]["content"][0]["toolUse"]["input"] == {"word": "Paris"}
    assert sent["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "a city"}]
    assert sent["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"] == {"json": {"type": "object"}}
    assert sent["inferenceConfig"] == {"maxTokens": 99, "topP": 0.5, "stopSequences": ["END"]}


def test_a_picture_in_its_place(server: ScriptedProvider) -> None:
    picture = b"\x89PNG\r\n\x1a\nvery small"
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    pieces = [
        {"type": "text", "text": "Is "},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "text", "text": " red?"},
    ]
    assert send(bedrock(server.address), messages=[{"role": "user", "content": pieces}]).status_code == 200
    [turn] = server.last.body["messages"]
    before, shown, after = turn["content"]
    assert (before, after) == ({"text": "Is "}, {"text": " red?"})
    assert shown["image"]["format"] == "png"
    assert base64.b64decode(shown["image"]["source"]["bytes"]) == picture


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "function", "function": {"name": "look_up"}}, {"tool": {"name": "look_up"}}),
    ],
)
def test_the_choice_of_a_tool(server: ScriptedProvider, choice: Any, sent: Document) -> None:
    empty = {"type": "object", "properties": {}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": empty}} for name in ("look_up", "write_down")
    ]
    assert send(bedrock(server.address), tools=tools, tool_choice=choice).status_code == 200
    assert server.last.body["toolConfig"].get("toolChoice", {"auto": {}}) == sent


def test_an_agents_tool_call_and_the_thinking_before_it(provider: Serve) -> None:
    """Claude refuses a tool's result without the signed thinking that led to the call."""
    server = provider(dialects.bedrock(CLAUDE, SIGNED, {"word": "Paris"}))
    upstream = bedrock(server.address, CLAUDE)

    first, second = with_a_result(upstream)
    choice = first.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["reasoning_content"]) == ("tool_calls", "France, so")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"word": "Paris"}'}
    assert second.json()["choices"][0]["message"]["content"] == "Paris"
    thought, called = server.last.body["messages"][1]["content"]
    assert thought["reasoningContent"]["reasoningText"] == {"text": "France, so", "signature": "c2ln"}
    assert called["toolUse"]["name"] == "look_up"


def test_a_signature_that_a_provider_puts_beside_a_tool_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemini refuses a tool's result without the signature of the call, which is no thinking of its own."""
    seen: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        call = ToolCallPart("look_up", {"word": "Paris"}, provider_details={"thought_signature": "c2ln"})
        return ModelResponse([call] if len(seen) == 1 else [TextPart("Paris")])

    monkeypatch.setattr(translation, "translated_model", lambda upstream, timeout: FunctionModel(answer))

    first, _ = with_a_result(bedrock("http://127.0.0.1:9"))
    assert "c2ln" not in first.text
    [called] = seen[1][1].parts
    assert isinstance(called, ToolCallPart)
    assert called.provider_details == {"thought_signature": "c2ln"}


def test_half_a_surrogate_pair_reaches_the_client_as_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [TextPart("a\ud83d"), ToolCallPart("look_up", {"word": "\udfff"})]
        return ModelResponse(parts, usage=RequestUsage(input_tokens=1, output_tokens=1))

    monkeypatch.setattr(translation, "translated_model", lambda upstream, timeout: FunctionModel(answer))

    said = send(bedrock("http://127.0.0.1:9"), tools=[TOOL]).json()["choices"][0]["message"]
    assert said["content"] == "a\ufffd"
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"word": "\ufffd"}


@pytest.mark.parametrize(("question", "word"), [("The capital of France?", "Rome"), ("The city of light?", "Paris")])
def test_a_tool_call_with_the_id_of_another_conversations(provider: Serve, question: str, word: str) -> None:
    """Kimi K2 counts its calls in each conversation anew: functions.look_up:0."""
    server = provider(dialects.bedrock(CLAUDE, SIGNED, {"word": "Paris"}))
    with_a_result(bedrock(server.address, CLAUDE), question=question, word=word)
    [called] = server.last.body["messages"][1]["content"]
    assert called["toolUse"]["input"] == {"word": word}


@pytest.mark.parametrize(
    ("knobs", "thinking"),
    [
        ({"reasoning_effort": 3000}, {"type": "enabled", "budget_tokens": 3000}),
        ({"reasoning_effort": "off"}, {"type": "disabled"}),
        ({}, None),
    ],
)
def test_the_targets_thinking_knobs(provider: Serve, knobs: dict[str, str], thinking: Document | None) -> None:
    server = provider(dialects.bedrock(CLAUDE, SIGNED))
    response = ask(bedrock(server.address, CLAUDE), max_tokens=20_000, **knobs)
    assert response.text == "Paris"
    assert server.last.body.get("additionalModelRequestFields", {}).get("thinking") == thinking


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_the_providers_status_reaches_the_gateway_after_one_try(provider: Serve, status: int) -> None:
    server = provider(lambda asked: failure(status, "too busy", **{"Retry-After": "3"}))
    response = send(bedrock(server.address))
    assert response.status_code == status
    assert len(server.requests) == 1
    assert response.headers.get("retry-after") == "3.0"
    assert "aws-secret" not in response.text


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception | ModelResponse], None]:
    """Sets what pydantic-ai raises or returns."""

    def end_with(what: Exception | ModelResponse) -> None:
        async def model_request(*args: object, **kwargs: object) -> ModelResponse:
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(translation, "model_request", model_request)

    return end_with


Ending = Callable[[Exception | ModelResponse], None]
USAGE = RequestUsage(input_tokens=11, output_tokens=3)
BROKEN_OFF = ModelResponse([TextPart("Par")], usage=USAGE, finish_reason="error")


@pytest.mark.parametrize(
    ("what", "status", "words", "tokens"),
    [
        (NoCredentialsError(), 401, "credentials", Tokens()),
        (UnexpectedModelBehavior("choices: null"), 502, "no answer", Tokens()),
        (AssertionError(), 502, "no answer", Tokens()),
        (KeyError("output"), 502, "no answer", Tokens()),
        (BROKEN_OFF, 502, "", Tokens(11, 3)),
    ],
)
def test_what_is_no_answer_has_its_status_and_costs_what_it_tells(
    outcome: Ending, what: Exception | ModelResponse, status: int, words: str, tokens: Tokens
) -> None:
    outcome(what)
    response = send(bedrock("http://127.0.0.1:1"))
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
    assert tokens_of(response.content, WIRE_FORMATS["openai-chat"]) == tokens


def test_no_server(server: ScriptedProvider) -> None:
    with pytest.raises(httpx.ConnectError):
        send(bedrock("http://127.0.0.1:1"))


@pytest.mark.nightly
def test_as_many_calls_at_once_as_the_gateway_may_make(provider: Serve, tmp_path: Path) -> None:
    """Bedrock's client blocks a thread for each, of which anyio has 40."""
    calls, known, arrived = 60, threading.Event(), threading.Barrier(60)

    def answer(request: Asked) -> Document:
        if known.is_set():
            arrived.wait(30)
        return dialects.bedrock(NOVA, SIGNED)(request)

    upstream, socket = bedrock(provider(answer).address), tmp_path / "model.sock"
    gateway = ModelGateway(upstream, socket, stage="rollout", max_attempts=1, call_timeout=60.0, on_call=lambda _: None)
    limits = httpx.Limits(max_connections=calls)
    transport = httpx.HTTPTransport(uds=str(socket), limits=limits)
    with gateway, httpx.Client(transport=transport, base_url="http://gateway", timeout=90) as client:
        body = {"model": NOVA, "messages": [USER]}
        with ThreadPoolExecutor(calls) as pool:
            # The gateway allows a server that it does not know few calls at once, and one more with each answer.
            list(pool.map(lambda _: client.post("/v1/chat/completions", json=body), range(calls)))
            known.set()
            asked = [pool.submit(client.post, "/v1/chat/completions", json=body) for _ in range(calls)]
        assert {one.result().status_code for one in asked} == {200}


def test_a_server_that_does_not_answer_in_time(provider: Serve) -> None:
    hang = Hanging()
    with pytest.raises(httpx.ReadTimeout):
        send(bedrock(provider(hang).address), timeout=0.3)
    hang.release()


def test_the_gateway_tries_again_meters_and_falls_back(rig: Callable[..., Rig], provider: Serve) -> None:
    """A chain of two: the first server is busy twice, then gone, and the second has a wire format of its own."""
    converse = provider(dialects.bedrock(NOVA, SIGNED))
    chain = {"fallbacks": (bedrock(converse.address),)}
    one = rig(lambda asked: failure(429, **{"Retry-After": "0"}), upstream=chain, max_attempts=2)
    answer = one.post(messages=[USER], max_tokens=9)
    assert answer.json()["choices"][0]["message"]["content"] == "Paris"
    (call,) = one.calls
    assert (call.http_status, call.prompt_tokens, call.completion_tokens) == (200, 11, 3)
    assert (call.attempts, len(one.provider.requests), len(converse.requests)) == (3, 2, 1)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ],
)
def test_a_request_that_cannot_be_translated(server: ScriptedProvider, body: Document, named: str) -> None:
    response = send(bedrock(server.address), **body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("connection aws_test ")
    assert named in response.json()["error"]["message"]
    assert server.requests == []


@pytest.mark.nightly
@pytest.mark.parametrize("row", [row for row in ERRORS if 400 <= row.http_status <= 500], ids=lambda row: row.sends)
def test_the_code_of_a_refused_prompt_reaches_the_sandbox(outcome: Ending, row: Row) -> None:
    outcome(ModelHTTPError(row.http_status, NOVA, row.body))
    response = send(bedrock("http://127.0.0.1:1"))
    assert response.status_code == min(row.http_status, 499) or response.status_code == 400
    assert response.json()["error"]["code"] == CODES[row.status]


@pytest.mark.nightly
@pytest.mark.parametrize("row", ENDINGS, ids=lambda row: row.sends)
def test_an_ending_means_the_same_as_at_a_compatible_server(outcome: Ending, row: Row) -> None:
    parts = [] if row.status is Status.EMPTY else [TextPart("Par")]
    outcome(ModelResponse(parts, provider_details={"finish_reason": row.body}))
    response = send(bedrock("http://127.0.0.1:1"))
    if row.status is Status.MODEL_ERROR:
        assert response.status_code == 502
    else:
        ending = response.json()["choices"][0]["finish_reason"]
        assert ending == {Status.REFUSED: "content_filter", Status.TRUNCATED: "length"}.get(row.status, "stop")


@pytest.mark.parametrize("provider_name", ["ollama", "alibaba", "moonshotai"])
def test_an_ending_without_a_name_ends_an_answer_of_every_compatible_provider(provider_name: str) -> None:
    with ScriptedProvider(lambda asked: completion("Paris", finish_reason="")) as one:
        arguments = SecretStr(json.dumps({"base_url": one.base_url, "api_key": "k"}))
        upstream = Upstream(
            conn_id="c", dialect="openai-chat", base_url="", model="m", provider=provider_name, arguments=arguments
        )
        response = send(upstream)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Paris"


def test_thinking_is_kept_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "MAX_KEPT_CHARS", 10_000)
    backend = translation.TranslatingBackend.__new__(translation.TranslatingBackend)
    backend._thought = OrderedDict()
    for number in [*range(50), 49]:
        call = ToolCallPart("run", {"n": number}, tool_call_id=str(number))
        backend._keep_thinking(ModelResponse(parts=[ThinkingPart("x" * 1000), call]), "opening")
    kept = [str(response.parts) for response in backend._thought.values()]
    assert 5 < len(kept) < 10
    assert sum(map(len, kept)) == backend._kept_chars <= 10_000
    assert "'n': 49" in kept[-1]
