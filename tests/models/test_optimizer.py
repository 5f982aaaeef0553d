from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    UserError,
)
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from skillopt_airflow.core.errors import ModelError, ModelOutputError, ModelUnreachable
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.models.optimizer import OUTPUT_RETRIES, PydanticAIOptimizer
from skillopt_airflow.optimizer.reflect import Reflection
from skillopt_airflow.optimizer.select import Ranking


class TooLong(ModelHTTPError, ModelContextWindowExceededError):
    """What pydantic-ai makes of an answer that it knows as too long a prompt."""


Respond = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


@contextmanager
def optimizer(respond: Respond) -> Iterator[tuple[PydanticAIOptimizer, list[ModelCall]]]:
    calls: list[ModelCall] = []
    with PydanticAIOptimizer(FunctionModel(respond, model_name="m"), calls.append) as connected:
        yield connected, calls


def calling(arguments: object, name: str = "rank_result") -> ModelResponse:
    """A model's call of the output tool, at 10 tokens in and 3 out."""
    part = ToolCallPart(name, arguments)  # type: ignore[arg-type]
    return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=10, output_tokens=3))


def test_an_answer_and_its_call() -> None:
    seen: list[AgentInfo] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return calling({"order": [1, 0]})

    with optimizer(respond) as (connected, calls):
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[1, 0])
    (info,) = seen
    assert [tool.name for tool in info.output_tools] == ["rank_result"]
    assert info.instructions == "Order them."
    assert not info.allow_text_output
    (call,) = calls
    assert (call.role, call.stage, call.model, call.http_status, call.attempts) == ("optimizer", "rank", "m", 200, 1)
    assert (call.prompt_tokens, call.completion_tokens) == (10, 3)


def test_pictures_follow_on_the_prompt_behind_their_names() -> None:
    asked: list[object] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.extend(part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
        return calling({"order": [0]})

    picture = b"\x89PNG\r\n\x1a\nvery small"
    with optimizer(respond) as (connected, _):
        connected.ask("rank", "Order them.", "the edits", Ranking, {"a.png of item 7": picture})
    assert asked == [["the edits", "Picture a.png of item 7:", BinaryContent(picture, media_type="image/png")]]


@pytest.mark.parametrize(
    "bad",
    [
        calling("not JSON"),
        calling('{"order": "first"}'),
        calling({"order": [{"index": 0}]}),
        calling({}),
        calling({"order": [0]}, name="unknown_tool"),
        calling('{"order": [' + "0, " * 100_000),
        ModelResponse(parts=[TextPart("I would rather not.")], usage=RequestUsage(input_tokens=10, output_tokens=3)),
        ModelResponse(parts=[], usage=RequestUsage(input_tokens=10, output_tokens=3)),
    ],
)
def test_a_malformed_answer_is_asked_again_and_then_given_up(bad: ModelResponse) -> None:
    with (
        optimizer(lambda messages, info: ModelResponse(parts=bad.parts, usage=bad.usage)) as (connected, calls),
        pytest.raises(ModelOutputError),
    ):
        connected.ask("rank", "i", "p", Ranking)
    # pydantic-ai asks once after a call of a tool that there is not, whatever the retries of the output.
    assert len(calls) == (2 if "unknown_tool" in str(bad.parts) else 1 + OUTPUT_RETRIES)
    assert {(call.http_status, call.attempts, call.prompt_tokens, call.completion_tokens) for call in calls} == {
        (200, 1, 10, 3)
    }


def test_a_good_second_answer_is_taken_and_both_are_calls() -> None:
    answers = iter(
        [calling({"edits": [{"op": "explode"}]}, "reflect_result"), calling({"edits": []}, "reflect_result")]
    )
    with optimizer(lambda messages, info: next(answers)) as (connected, calls):
        assert connected.ask("reflect", "i", "p", Reflection) == Reflection()
    assert [(call.attempts, call.prompt_tokens) for call in calls] == [(1, 10), (1, 10)]
    assert calls[0].started < calls[1].started


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_an_http_error_is_the_providers_and_no_answer(status: int) -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(status, "m", {"error": "why"})

    with (
        optimizer(respond) as (connected, calls),
        pytest.raises(ModelError, match=f"^rank: the optimizer model answered {status}: ") as raised,
    ):
        connected.ask("rank", "i", "p", Ranking)
    assert not isinstance(raised.value, ModelOutputError)
    (call,) = calls
    assert (call.http_status, call.prompt_tokens) == (status, 0)


REFUSALS = (
    (400, {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}),
    (500, {"error": {"message": "tools param requires --jinja flag"}}),
    (404, "No endpoints found that support tool use"),
    (400, "Thinking mode does not support this tool_choice"),
    (400, "The tool_choice parameter does not support being set to required or object in thinking mode"),
    (400, {"error": {"message": "tool_choice 'required' is incompatible with thinking enabled"}}),
    (400, {"error": {"message": "Function calling is not enabled for models/gemma-3-12b-it"}}),
)


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_a_server_without_tools_is_asked_for_plain_text_from_then_on(status: int, body: object) -> None:
    texts = iter(["Sorry, what?", '```json\n{"order": [1, 0]}\n```', '{"order": [0]}'])

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            raise ModelHTTPError(status, "m", body)
        assert '"order"' in str(info.instructions)
        return ModelResponse(parts=[TextPart(next(texts))])

    with optimizer(respond) as (connected, calls):
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[1, 0])
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[0])
    assert [call.http_status for call in calls] == [status, 200, 200, 200]


def test_a_model_that_takes_no_tools_while_it_thinks_is_asked_for_plain_text() -> None:
    texts = iter(['{"order": [1, 0]}', '{"order": [0]}'])

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            raise UserError("Bedrock does not support thinking and output tools at the same time.")
        return ModelResponse(parts=[TextPart(next(texts))])

    with optimizer(respond) as (connected, calls):
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[1, 0])
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[0])
    assert [call.http_status for call in calls] == [0, 200, 200]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"code": "context_length_exceeded", "message": "too many tokens"}}),
        (400, "maximum context length is 64000 tokens. You requested about 64387 tokens (9445 of tool input)"),
        (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"}}),
        (400, {"error": {"message": "the request exceeds the available context size"}}),
        (400, "The input (61709 tokens) is longer than the model's context length (40960 tokens)."),
        (400, "The decoder prompt (length 10127) is longer than the maximum model length of 8192."),
        (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        (400, {"error": {"message": "invalid params, context window exceeds limit (2013)"}}),
        (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"),
        (400, "Input length 230000 exceeds the maximum length 229376"),
        (400, "prompt too long; exceeded max context length by 4 tokens"),
    ],
)
def test_a_prompt_that_is_too_long_has_no_answer_of_use_and_is_sent_once(status: int, body: object) -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(status, "m", body)

    with optimizer(respond) as (connected, calls), pytest.raises(ModelOutputError, match="is too long for the model"):
        connected.ask("rank", "i", "p", Ranking)
    assert [call.http_status for call in calls] == [status]


def test_a_prompt_that_the_providers_library_calls_too_long_is_so() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise TooLong(400, "m", "Input is too long for requested model.")

    with optimizer(respond) as (connected, _), pytest.raises(ModelOutputError, match="is too long for the model"):
        connected.ask("rank", "i", "p", Ranking)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"code": "invalid_prompt", "message": "Your prompt was flagged as potentially violating our policy."}),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}),
        (403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["violence"]}}}),
    ],
)
def test_a_prompt_that_the_provider_refuses_has_no_answer_of_use(status: int, body: object) -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(status, "m", body)

    with optimizer(respond) as (connected, calls), pytest.raises(ModelOutputError, match="content filter refused"):
        connected.ask("rank", "i", "p", Ranking)
    assert [call.http_status for call in calls] == [status]


def test_a_connection_that_breaks_may_come_back() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelConnectionError("m", "Connection error.")

    with optimizer(respond) as (connected, _), pytest.raises(ModelUnreachable, match=r"did not answer: .*Connection"):
        connected.ask("rank", "i", "p", Ranking)


def test_an_answer_whose_call_of_a_tool_is_broken_is_no_refusal_of_tools() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.output_tools
        raise ModelHTTPError(500, "m", {"error": {"message": "Failed to parse tool call arguments as JSON"}})

    with optimizer(respond) as (connected, _), pytest.raises(ModelError, match="Failed to parse"):
        connected.ask("rank", "i", "p", Ranking)


def test_plain_text_that_never_fits_is_asked_for_twice() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            raise ModelHTTPError(*REFUSALS[0][:1], "m", REFUSALS[0][1])
        return ModelResponse(parts=[TextPart("I would rather not.")])

    with optimizer(respond) as (connected, calls), pytest.raises(ModelOutputError):
        connected.ask("rank", "i", "p", Ranking)
    assert [call.http_status for call in calls] == [400, 200, 200]


def test_no_connection_to_the_provider() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelAPIError("m", "Connection error.")

    with (
        optimizer(respond) as (connected, calls),
        pytest.raises(ModelError, match=r"^rank: the optimizer model did not answer: .*Connection error") as raised,
    ):
        connected.ask("rank", "i", "p", Ranking)
    assert not isinstance(raised.value, ModelOutputError)
    assert [call.http_status for call in calls] == [0]


def test_a_refusal_is_an_unusable_answer() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ContentFilterError("filtered")

    with optimizer(respond) as (connected, calls), pytest.raises(ModelOutputError, match="filtered"):
        connected.ask("rank", "i", "p", Ranking)
    assert [call.http_status for call in calls] == [200]


class Number(BaseModel):
    """An answer that tells the calls apart."""

    number: int


def test_calls_from_many_threads() -> None:
    calls: list[ModelCall] = []
    model = TestModel(custom_output_args={"number": 7})
    with PydanticAIOptimizer(model, calls.append) as connected, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda index: connected.ask("rank", "i", str(index), Number), range(40)))
    assert answers == [Number(number=7)] * 40
    assert len(calls) == 40
