"""Settings of a model's sampling and thinking, as pydantic-ai's model settings."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect

SWITCHES = {"on": True, "off": False}
OutputForm = Literal["auto", "tools", "text"]
"""The form of structured answers: a tool call, plain text, or whichever works."""
MODEL_ATTEMPTS = 5
"""Tries of one model call that ends in 429, 5xx or a timeout."""
PREFLIGHT_ATTEMPTS = 3
"""The same in the preflight: enough for a server that stumbles, and soon over if it is the wrong one."""
THOUGHT_END = "</think>"


def _switch(value: Any) -> Any:
    """Turn a boolean back into on or off, which YAML reads as booleans."""
    return ("on" if value else "off") if isinstance(value, bool) else value


Effort = Annotated[
    Literal["minimal", "low", "medium", "high", "xhigh", "max", "on", "off"] | Annotated[int, Field(ge=1)],
    BeforeValidator(_switch),
]
"""An effort or a switch for thinking before an answer, or its limit in tokens. Not every model supports all of them."""
_MAX_TOKENS = {
    "preflight": 1_000,
    **dict.fromkeys(("rank", "learning_rate", "judge", "judge_steps", "deep_reflect"), 4_000),
    **dict.fromkeys(("rewrite", "reflect_rewrite"), 32_000),
}
_MAX_TOKENS_OF_OTHERS = MAX_THOUGHTS = 16_000
"""MAX_THOUGHTS applies to a model that thinks without a limit."""


def answer_tokens(stage: str) -> int:
    """Return the token limit for an answer of the optimizer or judge; without one a model may loop."""
    return _MAX_TOKENS.get(stage, _MAX_TOKENS_OF_OTHERS)


def without_thinking(answer: str) -> str:
    """Return an answer without thinking that a server without a reasoning parser left in it.

    pydantic-ai searches for a whole block, but some chat templates, such as Qwen3.5's, start it themselves, so the
    answer contains only its end.
    """
    return answer.rpartition(THOUGHT_END)[2]


def translated_budget(tokens: int | None) -> JsonObject:
    """Return the limit of thinking in the settings of providers with other formats, which ignore each other's."""
    if tokens is None:
        return {}
    return {
        "google_thinking_config": {"include_thoughts": True, "thinking_budget": tokens},
        # Claude's field; other Bedrock models have none.
        "bedrock_additional_model_requests_fields": {"thinking": {"type": "enabled", "budget_tokens": tokens}},
        "openrouter_reasoning": {"max_tokens": tokens},
    }


def named_effort(effort: Effort | None) -> str | None:
    """Return an effort that is neither a switch nor a number of tokens."""
    return effort if isinstance(effort, str) and effort not in SWITCHES else None


def sampling_settings(
    dialect: Dialect | None,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    reasoning_effort: Effort | None = None,
    timeout: float | None = None,
) -> JsonObject:
    """Return the settings of a call; None leaves a setting to the server.

    `dialect` is None for a provider with another format, or several providers. `max_tokens` includes the answer's
    thinking, and `timeout` is in seconds per attempt.
    """
    settings: dict[str, JsonValue | None] = {"max_tokens": max_tokens, "temperature": temperature, "timeout": timeout}
    budget = reasoning_effort if isinstance(reasoning_effort, int) else None
    effort, switched = named_effort(reasoning_effort), SWITCHES.get(str(reasoning_effort))
    # Each provider ignores the settings that its model class doesn't know.
    for name in ("anthropic", "openai") if dialect is None else (dialect,):
        settings |= WIRE_FORMATS[name].sampling(effort, switched, budget)
    if dialect is None:
        settings |= translated_budget(budget)
    return {name: value for name, value in settings.items() if value is not None}
