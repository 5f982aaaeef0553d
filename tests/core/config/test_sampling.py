from typing import Any

import pytest
from pydantic_ai.models.anthropic import AnthropicModelSettings
from pydantic_ai.models.bedrock import BedrockModelSettings
from pydantic_ai.models.openai import OpenAIChatModelSettings, OpenAIResponsesModelSettings
from pydantic_ai.models.openrouter import OpenRouterModelSettings

from skillopt_airflow.core.config.sampling import sampling_settings, translated_budget, without_thinking
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.core.wire_formats.wire_format import taking_turns

ALL: dict[str, Any] = {"max_tokens": 99, "temperature": 0.0, "reasoning_effort": "low", "timeout": 7.5}
COMMON = {"max_tokens": 99, "temperature": 0.0, "timeout": 7.5}


@pytest.mark.parametrize(
    ("dialect", "settings"),
    [
        ("openai-chat", {"openai_reasoning_effort": "low"}),
        ("openai", {"openai_reasoning_effort": "low"}),
        ("anthropic", {"thinking": "low"}),
        (None, {"openai_reasoning_effort": "low", "thinking": "low"}),
    ],
)
def test_each_wire_format_gets_what_it_can_carry(dialect: Any, settings: dict[str, Any]) -> None:
    assert sampling_settings(dialect, **ALL) == COMMON | settings
    assert sampling_settings(dialect) == {}


@pytest.mark.parametrize(("value", "switched"), [("on", True), ("off", False)])
def test_a_switch_of_thinking(value: Any, switched: bool) -> None:
    in_template = {"extra_body": {"chat_template_kwargs": {"enable_thinking": switched}}}
    assert sampling_settings("openai-chat", reasoning_effort=value) == in_template
    assert sampling_settings("openai", reasoning_effort=value) == {}
    for dialect in ("anthropic", None):
        assert sampling_settings(dialect, reasoning_effort=value) == {"thinking": switched}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dialect", "settings"),
    [
        ("openai-chat", {"extra_body": {"chat_template_kwargs": {"thinking_budget": 512}}}),
        ("openai", {}),
        ("anthropic", {"anthropic_thinking": {"type": "enabled", "budget_tokens": 512}}),
        (None, {"anthropic_thinking": {"type": "enabled", "budget_tokens": 512}} | translated_budget(512)),
    ],
)
def test_a_limit_to_thinking(dialect: Any, settings: dict[str, Any]) -> None:
    assert sampling_settings(dialect, reasoning_effort=512) == settings


def test_providers_with_formats_of_their_own_have_words_for_the_limit() -> None:
    known = {*BedrockModelSettings.__annotations__, *OpenRouterModelSettings.__annotations__}
    # Google's settings are in a module that needs its SDK.
    assert translated_budget(512).keys() - known == {"google_thinking_config"}
    assert translated_budget(None) == {}


@pytest.mark.parametrize(
    ("dialect", "known"),
    [
        ("openai-chat", OpenAIChatModelSettings),
        ("openai", OpenAIResponsesModelSettings),
        ("anthropic", AnthropicModelSettings),
    ],
)
def test_pydantic_ai_has_every_setting(dialect: Any, known: Any) -> None:
    assert set(sampling_settings(dialect, **ALL)) <= {*known.__annotations__, *known.__optional_keys__}


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        ("Paris", "Paris"),
        ("", ""),
        ("France, so</think>\n\nParis", "\n\nParis"),
        ("<think>a</think>b</think>c", "c"),
        ("<think> was never closed", "<think> was never closed"),
    ],
)
def test_thinking_that_the_server_left_in_the_answer(answer: str, rest: str) -> None:
    assert without_thinking(answer) == rest


@pytest.mark.parametrize(
    ("said", "turns"),
    [
        ([], []),
        ([("system", "s"), ("user", "a"), ("user", "b"), ("user", "c")], [("system", "s"), ("user", "a\n\nb\n\nc")]),
        ([("user", "a"), ("tool", ""), ("user", "b")], [("user", "a\n\nb")]),
        (
            [("user", "a"), ("assistant", "b"), ("call", "f({})"), ("tool", "c")],
            [("user", "a"), ("assistant", "b\n\nf({})"), ("user", "c")],
        ),
    ],
)
def test_what_the_user_says_without_a_reply_is_one_turn(
    said: list[tuple[str, str]], turns: list[tuple[str, str]]
) -> None:
    messages = [Message.model_validate({"role": role, "content": content}) for role, content in said]
    assert [(turn.role, turn.content) for turn in taking_turns(messages)] == turns
