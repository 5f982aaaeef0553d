from typing import Any

import pytest
from pydantic_ai.models.anthropic import AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModelSettings, OpenAIResponsesModelSettings

from skillopt_airflow.core.sampling import sampling_settings, without_thinking

ALL: dict[str, Any] = {
    "max_tokens": 99,
    "temperature": 0.0,
    "seed": 0,
    "reasoning_effort": "low",
    "thinking": "off",
    "timeout": 7.5,
}
COMMON = {"max_tokens": 99, "temperature": 0.0, "timeout": 7.5}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic", None])
def test_what_is_unset_is_left_to_the_server(dialect: Any) -> None:
    assert sampling_settings(dialect) == {}


@pytest.mark.parametrize(
    ("dialect", "settings"),
    [
        (
            "openai-chat",
            {
                "seed": 0,
                "openai_reasoning_effort": "low",
                "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
            },
        ),
        ("openai", {"openai_reasoning_effort": "low"}),
        ("anthropic", {"thinking": "low"}),
        (None, {"seed": 0, "openai_reasoning_effort": "low", "thinking": "low"}),
    ],
)
def test_each_wire_format_gets_what_it_can_carry(dialect: Any, settings: dict[str, Any]) -> None:
    assert sampling_settings(dialect, **ALL) == COMMON | settings


@pytest.mark.parametrize("dialect", ["anthropic", None])
@pytest.mark.parametrize(("thinking", "switched"), [("on", True), ("off", False)])
def test_a_models_own_thinking_is_switched(dialect: Any, thinking: Any, switched: bool) -> None:
    assert sampling_settings(dialect, thinking=thinking) == {"thinking": switched}


@pytest.mark.parametrize(
    ("dialect", "known"),
    [
        ("openai-chat", OpenAIChatModelSettings),
        ("openai", OpenAIResponsesModelSettings),
        ("anthropic", AnthropicModelSettings),
    ],
)
def test_pydantic_ai_has_every_setting(dialect: Any, known: Any) -> None:
    assert set(sampling_settings(dialect, **ALL)) <= set(known.__annotations__) | set(
        known.__mro__[0].__optional_keys__
    )


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
