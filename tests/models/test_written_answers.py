"""Answers that say what is meant, in another form than they were asked for."""

import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from skillopt_airflow.core.errors import ModelError, ModelOutputError
from skillopt_airflow.core.values.types import ModelCall, Verdict
from skillopt_airflow.models.optimizer import OUTPUT_RETRIES, PydanticAIOptimizer, answer_in
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.reflect import Reflection, Rewriting
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion

EDITS = {"edits": [{"op": "append", "content": "- Give units."}]}
WRITTEN = json.dumps(EDITS)
CALL = {"name": "reflect_result", "arguments": EDITS}

UNDERSTOOD: dict[str, Any] = {
    "plain": EDITS,
    "one key": {"patch": EDITS},
    "a tool call": CALL,
    "a tool call with a string": {"name": "reflect_result", "arguments": WRITTEN},
    "a string": {"arguments": WRITTEN},
    "a string within a string": json.dumps(json.dumps(WRITTEN)),
    "a list": {"result": [EDITS]},
    "a function": {"type": "function", "function": {"name": "f", "arguments": WRITTEN}},
    "an array": json.dumps([EDITS]),
    "beside words": {"thoughts": "Units are missing.", "answer": EDITS},
    "beside known keys": EDITS | {"confidence": 1},
    "prose": f"Sure! Here it is:\n\n{WRITTEN}\n\nHope it helps.",
    "a fence": f"```json\n{WRITTEN}\n```",
    "a fence within prose": f"Here:\n```\n{json.dumps(EDITS, indent=2)}\n```\nDone {{}}.",
    "after thinking": f'<think>{{"edits": []}}?</think>{WRITTEN}',
    "after the end of thinking": f'First {{"edits": []}}.\n</think>\n\n{WRITTEN}',
    "after thinking in prose": f"</think>Here: {WRITTEN} </answer>",
    "after a draft": f'Draft: {{"edits": []}}. Better: {WRITTEN}',
    "before an example": f'{WRITTEN} For example {{"x": 1}} is none.',
    "a tag": f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
    "a function in a tag": f"<function=reflect_result{WRITTEN}</function>",
}


@pytest.mark.parametrize("written", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_an_answer_is_found_in_what_is_around_it(written: Any) -> None:
    found = answer_in(written, Reflection)
    assert found is not None
    assert Reflection.model_validate(found) == Reflection.model_validate(EDITS)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{}",
        "[]",
        "null",
        {},
        {"patch": {}},
        {"patch": {"changes": []}},
        {"a": EDITS, "b": EDITS},
        [EDITS, EDITS],
        "[" * 100_000,
        '{"patch": ' * 50_000,
        f'<think>{{"edits": []}}</think>{WRITTEN[:-3]}',
        f"{WRITTEN}</think>I can't.",
    ],
)
def test_anything_else_is_no_answer(written: Any) -> None:
    assert answer_in(written, Reflection) is None


def test_an_object_counts_if_it_has_all_that_is_required() -> None:
    assert answer_in({"result": {"rationale": "why"}}, Rewriting) is None
    assert answer_in({"result": {"body": "b"}, "rationale": "why"}, Rewriting) == {"body": "b"}
    verdict = {"grade": "correct", "quote": "\ud83d", "reason": "a\0b"}
    assert answer_in(f"Verdict: {json.dumps(verdict)}", Verdict) == verdict | {"quote": "\ufffd", "reason": "a\ufffdb"}


@pytest.mark.parametrize("written", [EDITS, CALL, UNDERSTOOD["a string within a string"], UNDERSTOOD["a fence"]])
@pytest.mark.parametrize("as_text", [False, True])
def test_such_an_answer_is_taken_at_once(written: Any, as_text: bool) -> None:
    calls: list[ModelCall] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        text = written if isinstance(written, str) else json.dumps(written)
        return ModelResponse(parts=[TextPart(text) if as_text else ToolCallPart("reflect_result", written)])

    with PydanticAIOptimizer(FunctionModel(respond), calls.append) as optimizer:
        assert optimizer.ask("reflect", "i", "p", Reflection) == Reflection.model_validate(EDITS)
        optimizer._takes_tools = False
        if as_text:
            assert optimizer.ask("reflect", "i", "p", Reflection) == Reflection.model_validate(EDITS)
    assert len(calls) == 1 + as_text


@pytest.mark.parametrize("written", [{}, {"analysis": "fine"}, {"patch": {"changes": [1]}}, "", "no edits"])
@pytest.mark.parametrize("tools", [False, True])
def test_an_answer_under_unknown_keys_is_asked_for_again(written: Any, tools: bool) -> None:
    asked: list[str] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(str(messages[-1]))
        answer = written if len(asked) == 1 else EDITS
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return ModelResponse(parts=[ToolCallPart("reflect_result", answer) if tools else TextPart(text)])

    with PydanticAIOptimizer(FunctionModel(respond), lambda call: None) as optimizer:
        optimizer._takes_tools = tools
        assert optimizer.ask("reflect", "i", "p", Reflection) == Reflection.model_validate(EDITS)
    assert len(asked) == 2


GROQ = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."


def groq(generation: str | None, code: str = "tool_use_failed", message: str = GROQ) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    given = {} if generation is None else {"failed_generation": generation}
    return Reply(400, json.dumps({"error": error | given}).encode())


def rank(*replies: Reply) -> tuple[Any, list[Asked], list[int]]:
    """The answer of a server with these replies, the requests, and the statuses of the calls."""
    calls: list[ModelCall] = []
    with ScriptedProvider(lambda asked: replies[min(asked.number, len(replies)) - 1]) as provider:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=provider.base_url, api_key="none"))
        with PydanticAIOptimizer(model, calls.append) as optimizer:
            try:
                answer: Any = optimizer.ask("rank", "i", "p", Ranking)
            except ModelError as error:
                answer = error
        return answer, provider.requests, [call.http_status for call in calls]


ORDER = {"type": "function", "id": "c", "function": {"name": "rank_result", "arguments": '{"order": [1, 0]}'}}


@pytest.mark.parametrize(
    ("first", "requests"),
    [
        (groq(None), 2),
        (groq("I can't do that."), 2),
        (groq('{"order": "x"'), 2),
        (groq('<function=rank_result{"order": [1, 0]}</function>'), 1),
        (groq('{"name": "rank_result", "arguments": {"order": [1, 0]}}'), 1),
        (groq('[{"name": "rank_result", "parameters": {"order": [1, 0]}}]', "json_validate_failed"), 1),
        (groq(None, message="Tool choice is required, but model did not call a tool"), 2),
    ],
)
def test_a_call_that_groq_could_not_read_is_read_or_asked_for_again(first: Reply, requests: int) -> None:
    answer, asked, _ = rank(first, completion("", "tool_calls", content=None, tool_calls=[ORDER]))
    assert answer == Ranking(order=[1, 0])
    assert len(asked) == requests
    assert all("tools" in one.body for one in asked)


def test_a_server_that_never_reads_its_models_calls_has_no_answer() -> None:
    answer, asked, statuses = rank(groq("No."))
    assert isinstance(answer, ModelOutputError)
    assert len(asked) == len(statuses) == 1 + OUTPUT_RETRIES


def test_another_400_ends_the_call() -> None:
    answer, asked, statuses = rank(groq(None, "invalid_api_version", "no such field"))
    assert not isinstance(answer, ModelOutputError)
    assert (len(asked), statuses) == (1, [400])
