"""The limits of each optimizer call: tokens by its purpose, seconds over all of its tries."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from skillopt_airflow.core.config import sampling
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.errors import AnswerCut, ModelError, ModelTooSlow, PromptTooLong, ToolsRefused
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.models.model_errors import is_unavailable
from skillopt_airflow.models.optimizer import PydanticAIOptimizer
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.reflect import Reflection
from skillopt_airflow.optimizer.sections import load_prompt
from tests.gateway.scripted_provider import ScriptedProvider
from tests.models.rambling_server import RamblingServer

RANKED = '{"name": "rank_result", "arguments": {"order": [1, 0]}}'


@contextmanager
def asking(server: RamblingServer, **options: Any) -> Iterator[tuple[PydanticAIOptimizer, list[ModelCall]]]:
    """An optimizer behind the server, and its calls."""
    calls: list[ModelCall] = []
    with ScriptedProvider(server.answer) as provider:
        model = OpenAIChatModel("some-model", provider=OpenAIProvider(base_url=provider.base_url, api_key="none"))
        with PydanticAIOptimizer(model, calls.append, **options) as optimizer:
            yield optimizer, calls
        server.gone.set()


STAGES = ("preflight", "rank", "judge", "reflect", "reflect_rewrite", "rewrite")


def test_every_limit_is_that_of_a_stage() -> None:
    for stage in sampling._MAX_TOKENS:
        assert load_prompt(stage)


@pytest.mark.parametrize(
    ("settings", "thinking", "limits"),
    [
        ({}, 0, [1_000, 4_000, 4_000, 16_000, 32_000, 32_000]),
        ({}, 2_000, [3_000, 6_000, 6_000, 18_000, 34_000, 34_000]),
        ({"max_tokens": 10_000}, 0, [1_000, 4_000, 4_000, 10_000, 10_000, 10_000]),
        ({"max_tokens": 500}, 2_000, [500] * 6),
    ],
)
def test_each_call_has_the_limit_of_its_purpose(settings: Any, thinking: int, limits: list[int]) -> None:
    server = RamblingServer(RANKED)
    with asking(server, settings=settings, thinking_tokens=thinking) as (optimizer, _):
        for stage in STAGES:
            optimizer.ask(stage, "i", "p", Ranking)
    assert server.limits == limits


@pytest.mark.parametrize(
    ("knobs", "tokens"),
    [
        ({}, 0),
        ({"optimizer_reasoning_effort": 3_000}, 3_000),
        ({"optimizer_reasoning_effort": "high"}, 16_000),
        ({"optimizer_reasoning_effort": "on"}, 16_000),
        ({"optimizer_reasoning_effort": "off"}, 0),
    ],
)
def test_thinking_has_room_beside_the_answer(knobs: dict[str, Any], tokens: int) -> None:
    assert ModelGroup(**knobs).optimizer_thoughts == tokens


REFUSALS = (
    "max_tokens is too large: {}. This model supports at most 4096 completion tokens, whereas you provided {}.",
    "This model's maximum context length is 8192 tokens. However, you requested {} tokens in the completion.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 500 `inputs` tokens and {} `max_new_tokens`",
    "max_completion_tokens: Extra inputs are not permitted",
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_limit_that_the_server_refuses_is_left_out_from_then_on(refusal: str) -> None:
    server = RamblingServer(RANKED, refusal=refusal.replace("{}", "{0}"))
    with asking(server) as (optimizer, calls):
        for _ in range(2):
            assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[1, 0])
    assert server.limits == [4_000, None, None]
    assert [call.http_status for call in calls] == [400, 200, 200]


def test_the_users_own_limit_is_never_left_out() -> None:
    server = RamblingServer(RANKED, refusal="max_tokens is too large: {}")
    with asking(server, settings={"max_tokens": 900}) as (optimizer, _), pytest.raises(ModelError, match="too large"):
        optimizer.ask("rank", "i", "p", Ranking)
    assert server.limits == [900]


def test_a_prompt_that_is_too_long_does_not_cost_the_limit() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(400, "m", "This model's maximum context length is 8192 tokens, your prompt has 9000.")

    with PydanticAIOptimizer(FunctionModel(respond), lambda call: None) as optimizer:
        for _ in range(2):
            with pytest.raises(PromptTooLong):
                optimizer.ask("rank", "i", "p", Ranking)
        assert optimizer._limited


@pytest.mark.parametrize(("stage", "tries"), [("rank", 2), ("preflight", 1)])
def test_a_call_ends_after_the_seconds_of_all_its_tries(stage: str, tries: int) -> None:
    server = RamblingServer(RANKED, seconds=10.0)
    with asking(server, settings={"timeout": 0.4}, max_attempts=2) as (optimizer, calls):
        began = time.monotonic()
        with pytest.raises(ModelTooSlow, match=r"raise model\.call_timeout"):
            optimizer.ask(stage, "i", "p", Ranking)
        assert 0.35 * tries < time.monotonic() - began < 0.4 * tries + 0.5
    assert [call.http_status for call in calls] == [0]


def test_answers_outside_the_schema_share_the_seconds_of_the_call() -> None:
    server = RamblingServer("No.", seconds=0.3, ends=True)
    with asking(server, settings={"timeout": 0.5}) as (optimizer, _), pytest.raises(ModelTooSlow):
        optimizer.ask("rank", "i", "p", Ranking)
    assert len(server.bodies) == 2


def test_a_fallback_has_the_seconds_that_the_first_model_had() -> None:
    slow, quick = RamblingServer(RANKED, seconds=10.0), RamblingServer(RANKED)
    with ScriptedProvider(slow.answer) as first, ScriptedProvider(quick.answer) as second:
        models = [
            OpenAIChatModel("m", provider=OpenAIProvider(base_url=one.base_url, api_key="none"))
            for one in (first, second)
        ]
        chain = FallbackModel(*models, fallback_on=is_unavailable)
        with PydanticAIOptimizer(chain, lambda call: None, {"timeout": 0.4}, max_attempts=2) as optimizer:
            assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[1, 0])
        slow.gone.set()
    assert len(quick.bodies) == 1


EDITS = json.dumps({"edits": [{"op": "append", "content": "- Give units."}]})


@pytest.mark.parametrize(
    "written",
    [
        f'{{"name": "reflect_result", "arguments": {EDITS}}}',
        EDITS,
        f"```json\n{EDITS}\n```",
        f"<tool_call>\n{EDITS}\n</tool_call>",
        f'{EDITS}\n{{"edits": [{{"op": "app',
        f'{{"name": "reflect_result", "arguments": {EDITS}',
    ],
)
@pytest.mark.parametrize("output", ["tools", "text"])
def test_a_complete_answer_counts_whatever_is_cut_behind_it(written: str, output: Any) -> None:
    server = RamblingServer(written, written)
    with asking(server, output=output) as (optimizer, calls):
        assert optimizer.ask("reflect", "i", "p", Reflection) == Reflection.model_validate_json(EDITS)
    assert server.with_tools == [output == "tools"]
    assert [(call.http_status, call.completion_tokens) for call in calls] == [(200, 16_000)]


def test_a_tool_call_with_more_behind_its_arguments_counts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "rank_result", "arguments": '{"order": [1]}\n{"ord'}}
    with asking(RamblingServer("", message={"tool_calls": [call]})) as (optimizer, _):
        assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[1])


@pytest.mark.parametrize("output", ["tools", "text"])
@pytest.mark.parametrize(("settings", "knob"), [({}, False), ({"max_tokens": 70}, True)])
def test_an_answer_that_is_cut_is_not_asked_for_again_and_counts(output: Any, settings: Any, knob: bool) -> None:
    server = RamblingServer('{"order": [1, ', '{"order": [1, ')
    with asking(server, settings=settings, output=output) as (optimizer, calls), pytest.raises(AnswerCut) as raised:
        optimizer.ask("rank", "i", "p", Ranking)
    assert ("model.optimizer_max_tokens" in str(raised.value)) == knob
    assert [(call.http_status, call.prompt_tokens, call.completion_tokens) for call in calls] == [
        (200, 20, 70 if knob else 4_000)
    ]


THOUGHT: tuple[Callable[[], ModelResponse], ...] = (
    lambda: ModelResponse(parts=[ThinkingPart("Hm")], finish_reason="length"),
    lambda: ModelResponse(
        parts=[], finish_reason="length", usage=RequestUsage(output_tokens=4_000, details={"reasoning_tokens": 4_000})
    ),
)


@pytest.mark.parametrize("thought", THOUGHT)
def test_thinking_that_takes_the_whole_limit_gets_none(thought: Callable[[], ModelResponse]) -> None:
    limits: list[int | None] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        limits.append((info.model_settings or {}).get("max_tokens"))
        return thought() if limits[-1] is not None else ModelResponse(parts=[TextPart(RANKED)])

    calls: list[ModelCall] = []
    with PydanticAIOptimizer(FunctionModel(respond), calls.append) as optimizer:
        for _ in range(2):
            assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[1, 0])
    assert limits == [4_000, None, None]
    assert [call.http_status for call in calls] == [200, 200, 200]


def test_the_form_of_the_answers_is_as_it_is_set() -> None:
    server = RamblingServer(None, '{"order": [0]}')
    with asking(server, output="tools") as (optimizer, _), pytest.raises(ToolsRefused):
        optimizer.ask("rank", "i", "p", Ranking)
    with asking(server, output="text") as (optimizer, _):
        assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[0])
    with asking(server) as (optimizer, _):
        assert optimizer.ask("rank", "i", "p", Ranking) == Ranking(order=[0])
    assert server.with_tools == [True, False, True, False]
