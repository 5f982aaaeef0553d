from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import ToolParam, ToolUseBlock

from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire as chat
from local.standin import messages_wire as messages
from skillopt_airflow.core.errors import ModelError
from tests.local.standin.questions import ANSWER, QUESTION, STAND_IN, SYSTEM, TASK, USER

ASKED: dict[str, Any] = {
    "model": "stand-in-target",
    "max_tokens": 100,
    "system": SYSTEM.content,
    "messages": [{"role": "user", "content": USER.content}],
}
SEARCH: ToolParam = {"name": "search_documents", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture
def client(standin_url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=standin_url.removesuffix("/v1"), api_key="none", max_retries=0) as made:
        yield made


def test_answers_like_chat_completions(client: anthropic.Anthropic) -> None:
    said = client.messages.create(**ASKED)
    completion = chat.complete({"messages": [SYSTEM.model_dump(), USER.model_dump()]}, STAND_IN.reply)

    (block,) = said.content
    assert block.type == "text"
    assert block.text == completion["choices"][0]["message"]["content"]
    assert BENCHMARK.answer(block.text) == ANSWER
    assert said.stop_reason == "end_turn"
    assert said.usage.input_tokens == completion["usage"]["prompt_tokens"]
    assert said.usage.output_tokens == completion["usage"]["completion_tokens"]
    assert client.messages.count_tokens(model="m", system=ASKED["system"], messages=ASKED["messages"]).input_tokens == (
        said.usage.input_tokens
    )


def test_a_stream_ends_with_what_comes_in_one_piece(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()

    assert final.content[0].type == "text"
    assert final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert (final.usage, final.stop_reason, final.id) == (whole.usage, whole.stop_reason, whole.id)
    # The client adds `text` for every delta of one.
    assert [name for name in events if name != "text"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_tool_is_called_and_its_result_answered_from(client: anthropic.Anthropic) -> None:
    asked: list[Any] = [{"role": "user", "content": TASK}]
    request = ASKED | {"messages": asked, "tools": [SEARCH]}
    with client.messages.stream(**request) as stream:
        final = stream.get_final_message()
    (call,) = final.content
    assert isinstance(call, ToolUseBlock)
    assert (call.name, call.input) == ("search_documents", {"query": QUESTION})
    assert final.stop_reason == "tool_use"

    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Some documents."}]}
    asked += [{"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    (block,) = client.messages.create(**request).content
    assert block.type == "text"
    assert BENCHMARK.answer(block.text) == ANSWER


def test_a_system_message_among_the_turns_is_an_instruction() -> None:
    turns = [{"role": "user", "content": USER.content}, {"role": "system", "content": SYSTEM.content}]
    (block,) = messages.respond({"messages": turns}, STAND_IN.reply)["content"]
    assert BENCHMARK.answer(block["text"]) == ANSWER


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        ({"messages": "x"}, "messages: expected a list"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "a list of blocks"),
        ({"messages": [], "tools": "x"}, "tools: expected a list"),
        ({"messages": [], "tools": [{"name": "dream_result"}]}, "knows .*rank_result.*; got dream_result"),
    ],
)
def test_bad_requests_get_an_explanation(client: anthropic.Anthropic, request_body: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        messages.respond(request_body, STAND_IN.reply)
    with pytest.raises(anthropic.BadRequestError, match=words):
        client.post("/v1/messages", body=request_body | {"stream": True}, cast_to=object)
