import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, RunUsage

from skillopt_airflow.core.errors import BudgetUsedUp, ModelError, ModelUnavailable
from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Message, ModelCall
from skillopt_airflow.models.metering import CallUsage, calls_of
from skillopt_airflow.models.model_errors import is_unavailable
from skillopt_airflow.models.optimizer import PydanticAIOptimizer
from skillopt_airflow.models.target import PydanticAITarget
from skillopt_airflow.optimizer.learning_rate import Ranking

PICTURE = b"\x89PNG\r\n\x1a\nvery small"
CONVERSATION = [
    Message(role="system", content="the skill"),
    Message(role="user", content="the clue"),
    Message(role="assistant", content="an answer"),
    Message(role="user", content="Why?"),
]


def test_the_whole_conversation_reaches_the_model_with_the_settings_of_a_rollout() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []
    calls: list[ModelCall] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse(parts=[TextPart("because")], usage=RequestUsage(input_tokens=9, output_tokens=2))

    model = FunctionModel(respond, model_name="m")
    with PydanticAITarget(model, calls.append, {"temperature": 0.5, "max_tokens": 77}) as target:
        assert target.ask("follow_up", CONVERSATION, {}) == "because"
    [(messages, info)] = seen
    parts = [
        part for message in messages if isinstance(message, ModelRequest | ModelResponse) for part in message.parts
    ]
    assert [str(getattr(part, "content", "")) for part in parts] == [message.content for message in CONVERSATION]
    assert info.model_settings is not None
    assert (info.model_settings.get("temperature"), info.model_settings.get("max_tokens")) == (0.5, 77)
    (call,) = calls
    assert (call.role, call.stage, call.http_status) == ("target", "follow_up", 200)
    assert (call.prompt_tokens, call.completion_tokens) == (9, 2)


@pytest.mark.parametrize(
    ("turns", "prompts"),
    [
        (
            [("user", f"Is {mark('a.png')} red?"), ("assistant", "yes"), ("user", f"Why? {mark('a.png')}")],
            [["Is ", BinaryContent(PICTURE, media_type="image/png"), " red?"], "Why? [picture: a.png]"],
        ),
        (
            [("user", "the clue"), ("assistant", "an answer"), ("user", "Why?"), ("user", "Tell.")],
            ["the clue", "Why?\n\nTell."],
        ),
    ],
)
def test_pictures_are_shown_once_and_what_the_user_says_in_a_row_is_one_turn(
    turns: list[tuple[str, str]], prompts: list[object]
) -> None:
    seen: list[ModelMessage] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("because")])

    with PydanticAITarget(FunctionModel(respond), [].append, {}) as target:
        said = [Message.model_validate({"role": role, "content": text}) for role, text in turns]
        target.ask("follow_up", said, {"a.png": PICTURE})
    assert [part.content for turn in seen for part in turn.parts if isinstance(part, UserPromptPart)] == prompts


def test_a_provider_that_does_not_answer_is_a_model_error_and_still_a_call() -> None:
    calls: list[ModelCall] = []

    def refuse(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(503, "m", "overloaded")

    with (
        PydanticAITarget(FunctionModel(refuse), calls.append, {"max_tokens": 7}) as target,
        pytest.raises(ModelError, match="follow_up: the target model did not answer"),
    ):
        target.ask("follow_up", CONVERSATION, {})
    assert [call.http_status for call in calls] == [503]


STATUSES = st.sampled_from([0, 200, 429, 503])


@given(st.integers(0, 5), st.integers(0, 1000), st.integers(0, 1000), STATUSES, st.floats(0, 100))
def test_the_rows_are_the_requests_and_hold_all_tokens(
    requests: int, prompt: int, completion: int, status: int, seconds: float
) -> None:
    usage = RunUsage(requests=requests, input_tokens=prompt, output_tokens=completion)
    rows = calls_of(CallUsage(usage, status), "optimizer", "rank", "m", 5.0, seconds)
    assert len(rows) == max(1, requests + (status != 200))
    assert rows[-1].http_status == status
    assert {row.http_status for row in rows[:-1]} <= {200}
    # A request that failed after answered ones has no tokens.
    assert not requests or status == 200 or (rows[-1].prompt_tokens, rows[-1].completion_tokens) == (0, 0)
    assert sum(row.prompt_tokens for row in rows) == prompt
    assert sum(row.completion_tokens for row in rows) == completion
    assert abs(sum(row.seconds for row in rows) - seconds) < 1e-9


class Untimed(FunctionModel):
    """A model whose client takes no limit for a try, such as Bedrock's."""

    unsupported_settings = frozenset({"timeout", "max_retries", "seed"})


async def hang(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    await asyncio.sleep(5)
    raise AssertionError


def out_of_order(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ModelHTTPError(503, "m", "overloaded")


@pytest.mark.filterwarnings("ignore:The .* setting is not supported by model")
@pytest.mark.parametrize(
    "model", [Untimed(hang), FallbackModel(FunctionModel(out_of_order), Untimed(hang), fallback_on=is_unavailable)]
)
def test_a_client_without_a_limit_for_a_try_has_one_for_all_of_them(model: Model) -> None:
    with (
        PydanticAIOptimizer(model, [].append, {"timeout": 0.05, "seed": 7}, max_attempts=2) as asked,
        pytest.raises(ModelUnavailable, match="timed out"),
    ):
        asked.ask("rank", "i", "p", Ranking)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_no_request_is_made_that_the_budget_does_not_allow_not_even_to_repeat_an_answer(allowed: int) -> None:
    made, calls, left = list[None](), list[ModelCall](), [None] * allowed

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made.append(None)
        return ModelResponse([TextPart("no ranking")])

    def begin() -> None:
        if not left:
            raise BudgetUsedUp("budget.max_calls is used up")
        left.pop()

    with (
        PydanticAIOptimizer(FunctionModel(respond), calls.append, begin=begin) as optimizer,
        pytest.raises(BudgetUsedUp),
    ):
        optimizer.ask("rank", "i", "p", Ranking)
    assert len(made) == len(calls) == allowed
