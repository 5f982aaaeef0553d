import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire as chat
from local.standin import responses_wire as responses
from skillopt_airflow.core.errors import ModelError
from tests.local.standin.questions import ANSWER, QUESTION, STAND_IN, SYSTEM, TASK, USER

SEARCH: dict[str, Any] = {
    "type": "function",
    "name": "search_documents",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def client(standin_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=standin_url, api_key="none", max_retries=0) as made:
        yield made


def test_answers_like_chat_completions(client: openai.OpenAI) -> None:
    said = client.responses.create(model="stand-in-target", instructions=SYSTEM.content, input=USER.content)
    messages = [SYSTEM.model_dump(), USER.model_dump()]
    completion = chat.complete({"messages": messages}, STAND_IN.reply)

    assert said.output_text == completion["choices"][0]["message"]["content"]
    assert BENCHMARK.answer(said.output_text) == ANSWER
    assert said.status == "completed"
    assert said.usage is not None
    assert said.usage.input_tokens == completion["usage"]["prompt_tokens"]
    assert said.usage.output_tokens == completion["usage"]["completion_tokens"] > 0


def test_a_stream_ends_with_what_comes_in_one_piece(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="m", instructions=SYSTEM.content, input=USER.content)
    with client.responses.stream(model="m", instructions=SYSTEM.content, input=USER.content) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert final.output_text == whole.output_text
    assert final.usage == whole.usage
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(9))


def test_a_tool_is_called_and_its_result_answered_from(client: openai.OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": TASK}]
    with client.responses.stream(model="m", instructions=SYSTEM.content, input=asked, tools=[SEARCH]) as stream:
        events = list(stream)
        (call,) = stream.get_final_response().output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments)) == ("search_documents", {"query": QUESTION})
    assert "response.function_call_arguments.done" in [event.type for event in events]

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Some documents."}
    conversation = [*asked, call.model_dump(exclude_none=True), result]
    said = client.responses.create(model="m", instructions=SYSTEM.content, input=conversation, tools=[SEARCH])
    assert BENCHMARK.answer(said.output_text) == ANSWER


def test_reasoning_and_free_form_tools_are_left_aside() -> None:
    request = {
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": SYSTEM.content}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "user", "content": [{"type": "input_text", "text": USER.content}]},
        ],
        "tools": [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}],
    }
    (message,) = responses.respond(request, STAND_IN.reply)["output"]
    assert BENCHMARK.answer(message["content"][0]["text"]) == ANSWER


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        ({"input": 3}, "input: expected a list"),
        ({"input": "x", "tools": ["y"]}, "tools: expected a list"),
        ({"input": "x", "previous_response_id": "resp_1"}, "stores nothing"),
    ],
)
def test_bad_requests_get_an_explanation(request_body: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        responses.respond(request_body, STAND_IN.reply)
    with pytest.raises(ModelError, match=words):
        next(responses.stream(request_body, STAND_IN.reply))
