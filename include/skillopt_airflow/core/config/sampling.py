"""The settings by which a model samples and thinks, in the words of pydantic-ai's model settings."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect

SWITCHES = {"on": True, "off": False}
OutputForm = Literal["auto", "tools", "text"]
"""How a structured answer is asked for: by a tool call, in plain text, or by whichever of them works."""
MODEL_ATTEMPTS = 5
"""Tries of one model call that ends in 429, 5xx or a timeout."""
PREFLIGHT_ATTEMPTS = 3
"""The same in the preflight: enough for a server that stumbles, and soon over if it is the wrong one."""
THOUGHT_END = "</think>"


def _switch(value: Any) -> Any:
    """Return on or off for a truth value, as which YAML reads these words."""
    return ("on" if value else "off") if isinstance(value, bool) else value


Effort = Annotated[
    Literal["minimal", "low", "medium", "high", "xhigh", "max", "on", "off"] | Annotated[int, Field(ge=1)],
    BeforeValidator(_switch),
]
"""How much a model thinks before it answers, whether it thinks, or the most tokens that it thinks. Not every model has
all of them."""
_MAX_TOKENS = {
    "preflight": 1_000,
    **dict.fromkeys(("rank", "learning_rate", "judge", "judge_steps", "deep_reflect"), 4_000),
    **dict.fromkeys(("rewrite", "reflect_rewrite"), 32_000),
}
_MAX_TOKENS_OF_OTHERS = MAX_THOUGHTS = 16_000
"""The latter for a model that is set to think without a limit to it."""


def answer_tokens(stage: str) -> int:
    """Return the most tokens of an answer of the optimizer or judge, since a model may write without end."""
    return _MAX_TOKENS.get(stage, _MAX_TOKENS_OF_OTHERS)


def without_thinking(answer: str) -> str:
    """Return an answer without the thinking that a server left in it.

    Some chat templates, such as Qwen3.5's, open the block themselves: only its end is in the answer, and pydantic-ai
    looks for both. A server with a reasoning parser leaves neither.
    """
    return answer.rpartition(THOUGHT_END)[2]


def translated_budget(tokens: int | None) -> JsonObject:
    """Return the limit to thinking in the words of the providers with formats of their own; none if it is None.

    Each provider passes over the words of the others.
    """
    if tokens is None:
        return {}
    return {
        "google_thinking_config": {"include_thoughts": True, "thinking_budget": tokens},
        # Claude's field; other models there have none.
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
    """Return the settings of a call; what is None is left to the server.

    Args:
        dialect: the wire format; None for a provider with one of its own, and for several of them.
        max_tokens: most tokens of the answer, those of its thinking included.
        timeout: seconds of one try.
    """
    settings: dict[str, JsonValue | None] = {"max_tokens": max_tokens, "temperature": temperature, "timeout": timeout}
    budget = reasoning_effort if isinstance(reasoning_effort, int) else None
    effort, switched = named_effort(reasoning_effort), SWITCHES.get(str(reasoning_effort))
    if dialect is None:
        # Each provider takes what its own model has a word for, and passes over the rest.
        for name in ("anthropic", "openai"):
            settings |= WIRE_FORMATS[name].sampling(effort, switched, budget)
        settings |= translated_budget(budget)
    else:
        settings |= WIRE_FORMATS[dialect].sampling(effort, switched, budget)
    return {name: value for name, value in settings.items() if value is not None}
