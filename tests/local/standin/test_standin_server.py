import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from benchmarks.searchqa.adapter import BENCHMARK
from tests.local.standin.questions import ANSWER, SYSTEM, TASK, USER


@pytest.fixture
def client(standin_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=standin_url, api_key="none", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI) -> openai.types.chat.ChatCompletion:
    return client.chat.completions.create(
        model="stand-in-target",
        messages=[{"role": "system", "content": SYSTEM.content}, {"role": "user", "content": USER.content}],
    )


def test_lists_its_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["stand-in-target", "stand-in-optimizer"]


def test_answers_as_target_and_says_what_it_is(client: openai.OpenAI) -> None:
    completion = ask(client)
    content = completion.choices[0].message.content
    assert content is not None
    assert BENCHMARK.answer(content) == ANSWER
    assert completion.system_fingerprint == "stand-in"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > completion.usage.completion_tokens > 0
    assert completion == ask(client)


def test_answers_a_question_about_its_own_answer(client: openai.OpenAI) -> None:
    given = ask(client).choices[0].message.content
    completion = client.chat.completions.create(
        model="stand-in-target",
        messages=[
            {"role": "system", "content": SYSTEM.content},
            {"role": "user", "content": USER.content},
            {"role": "assistant", "content": given},
            {"role": "user", "content": "Which words made you choose this answer?"},
        ],
    )
    said = completion.choices[0].message.content
    assert said is not None
    assert ANSWER in said
    assert said.endswith(SYSTEM.content.removeprefix("- "))


def test_a_request_of_a_stage_that_lacks_a_part_gets_an_explanation(client: openai.OpenAI) -> None:
    tool: ChatCompletionToolParam = {"type": "function", "function": {"name": "slow_update_result", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="no <guidance> section"):
        client.chat.completions.create(
            model="stand-in-optimizer", messages=[{"role": "user", "content": "<skill>\nx\n</skill>"}], tools=[tool]
        )


def test_answers_as_optimizer_with_the_tool_that_is_offered(client: openai.OpenAI) -> None:
    tool: ChatCompletionToolParam = {"type": "function", "function": {"name": "rank_result", "parameters": {}}}
    edits = '[{"index": 0, "op": "append", "content": "- x"}]'
    prompt = f"<skill>\nx\n</skill>\n\n<budget>\n1\n</budget>\n\n<edits>\n{edits}\n</edits>"
    completion = client.chat.completions.create(
        model="stand-in-optimizer",
        messages=[{"role": "user", "content": [{"type": "text", "text": prompt}]}],
        tools=[tool],
        tool_choice="required",
    )
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == (
        "rank_result",
        '{"reasoning": "By support.", "order": [0]}',
    )


def test_serves_sixteen_clients_at_once(client: openai.OpenAI) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(client).choices[0].message.content, range(64)))
    assert len(set(answers)) == 1


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="stand-in-target",
        messages=[{"role": "system", "content": SYSTEM.content}, {"role": "user", "content": USER.content}],
        stream_options={"include_usage": True},
    ) as stream:
        final = [event for event in stream if event.type == "chunk"] and stream.get_final_completion()
    assert final.choices[0].message.content == ask(client).choices[0].message.content
    assert final.choices[0].finish_reason == "stop"
    assert final.usage == ask(client).usage


def test_a_stream_may_call_a_tool(client: openai.OpenAI) -> None:
    tool: ChatCompletionToolParam = {"type": "function", "function": {"name": "search_documents", "parameters": {}}}
    chunks = list(
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": TASK}], tools=[tool], stream=True
        )
    )
    calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert [(call.index, call.function and call.function.name) for call in calls] == [(0, "search_documents")]
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices] == [None, "tool_calls"]
    assert all(chunk.usage is None for chunk in chunks)


def test_bad_requests_get_an_explanation(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="a name each"):
        client.post("/chat/completions", body={"messages": [], "tools": [{}], "stream": True}, cast_to=object)
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.embeddings.create(model="m", input="x")
    with pytest.raises(openai.BadRequestError, match="expected a list"):
        client.post("/chat/completions", body={"messages": "x"}, cast_to=object)
    with pytest.raises(openai.BadRequestError, match="JSON object"):
        client.post("/chat/completions", body=[], cast_to=object)


@pytest.mark.nightly
def test_runs_as_a_module_and_prints_its_address() -> None:
    command = [sys.executable, "-m", "local.standin", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as made:
                assert ask(made).system_fingerprint == "stand-in"
        finally:
            process.terminate()
