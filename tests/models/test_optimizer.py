from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
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
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.models.optimizer import OUTPUT_RETRIES, PydanticAIOptimizer
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.reflect import Reflection


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


REFUSALS = (
    ModelHTTPError(400, "m", {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}),
    ModelHTTPError(500, "m", {"error": {"message": "tools param requires --jinja flag"}}),
    ModelHTTPError(404, "m", "No endpoints found that support tool use"),
    ModelHTTPError(400, "m", "Thinking mode does not support this tool_choice"),
    ModelHTTPError(400, "m", "tool_choice does not support being set to required or object in thinking mode"),
    ModelHTTPError(400, "m", {"error": {"message": "tool_choice 'required' is incompatible with thinking enabled"}}),
    ModelHTTPError(400, "m", {"error": {"message": "Function calling is not enabled for models/gemma-3-12b-it"}}),
    UserError("Bedrock does not support thinking and output tools at the same time."),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_server_without_tools_is_asked_for_plain_text_from_then_on(refusal: Exception) -> None:
    texts = iter(["Sorry, what?", '```json\n{"order": [1, 0]}\n```', '{"order": [0]}'])

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            raise refusal
        # An example of the answer; a small model would repeat a schema.
        assert '"order": [1]}' in str(info.instructions)
        assert "properties" not in str(info.instructions)
        return ModelResponse(parts=[TextPart(next(texts))])

    with optimizer(respond) as (connected, calls):
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[1, 0])
        assert connected.ask("rank", "Order them.", "the edits", Ranking) == Ranking(order=[0])
    assert [call.http_status for call in calls] == [getattr(refusal, "status_code", 0), 200, 200, 200]


TOO_LONG = {"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000"}}
DECODER = "The decoder prompt (length 10127) is longer than the maximum model length of 8192."
FILTERED = {"error": {"code": "content_filter", "message": "filtered"}}


@pytest.mark.parametrize(
    ("raised", "kind", "words", "status"),
    [
        (ModelHTTPError(400, "m", TOO_LONG), ModelOutputError, "is too long for the model", 400),
        (ModelHTTPError(400, "m", DECODER), ModelOutputError, "too long", 400),
        (ModelHTTPError(400, "m", "Input length 9 exceeds the maximum length 8"), ModelOutputError, "long", 400),
        (TooLong(400, "m", "Input is too long for requested model."), ModelOutputError, "too long", 400),
        (ModelHTTPError(400, "m", FILTERED), ModelOutputError, "content filter refused", 400),
        (ContentFilterError("filtered"), ModelOutputError, "filtered", 200),
        (ModelHTTPError(401, "m", {"error": "why"}), ModelError, "^rank: .* 401: ", 401),
        (ModelHTTPError(503, "m", {"error": "why"}), ModelError, "^rank: .* 503: ", 503),
        # It is no refusal of tools.
        (ModelHTTPError(500, "m", "Failed to parse tool call arguments as JSON"), ModelError, "Failed to parse", 500),
        (ModelAPIError("m", "Connection error."), ModelError, "^rank: .*Connection error", 0),
        (ModelConnectionError("m", "Connection error."), ModelUnreachable, "Connection error", 0),
    ],
)
def test_what_a_provider_does_wrong_is_an_error_of_its_kind_after_one_call(
    raised: Exception, kind: type[ModelError], words: str, status: int
) -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.output_tools
        raise raised

    with optimizer(respond) as (connected, calls), pytest.raises(kind, match=words) as found:
        connected.ask("rank", "i", "p", Ranking)
    assert isinstance(found.value, ModelOutputError) == (kind is ModelOutputError)
    assert [(call.http_status, call.prompt_tokens) for call in calls] == [(status, 0)]


def test_plain_text_that_never_fits_is_asked_for_twice() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            raise REFUSALS[0]
        return ModelResponse(parts=[TextPart("I would rather not.")])

    with optimizer(respond) as (connected, calls), pytest.raises(ModelOutputError):
        connected.ask("rank", "i", "p", Ranking)
    assert [call.http_status for call in calls] == [400, 200, 200]


def test_calls_from_many_threads() -> None:
    calls: list[ModelCall] = []
    model = TestModel(custom_output_args={"order": [1]})
    with PydanticAIOptimizer(model, calls.append) as connected, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda index: connected.ask("rank", "i", str(index), Ranking), range(40)))
    assert answers == [Ranking(order=[1])] * 40
    assert len(calls) == 40
