"""The settings by which a model samples and thinks, in the words of pydantic-ai's model settings."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import WIRE_FORMATS, Dialect

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers; not every model has the highest ones."""
OutputForm = Literal["auto", "tools", "text"]
"""How a structured answer is asked for: by a tool call, in plain text, or by whichever of them works."""
THOUGHT_END = "</think>"


def _switch(value: Any) -> Any:
    """Return on or off for a truth value, as which YAML reads these words."""
    return ("on" if value else "off") if isinstance(value, bool) else value


Thinking = Annotated[Literal["on", "off"] | Annotated[int, Field(ge=1)], BeforeValidator(_switch)]
"""Whether a model thinks before it answers, or the most tokens that it thinks."""
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


def sampling_settings(
    dialect: Dialect | None,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    reasoning_effort: Effort | None = None,
    thinking: Thinking | None = None,
    timeout: float | None = None,
) -> JsonObject:
    """Return the settings of a call; what is None is left to the server.

    Args:
        dialect: the wire format; None for a provider with one of its own, and for several of them.
        max_tokens: most tokens of the answer, those of its thinking included.
        timeout: seconds of one try.
    """
    settings: dict[str, JsonValue | None] = {"max_tokens": max_tokens, "temperature": temperature, "timeout": timeout}
    budget = thinking if isinstance(thinking, int) else None
    switched = {"on": True, "off": False}.get(str(thinking))
    if dialect is None:
        # Each provider takes what its own model has a word for, and passes over the rest.
        for name in ("anthropic", "openai"):
            settings |= WIRE_FORMATS[name].sampling(seed, reasoning_effort, switched, budget)
        settings |= translated_budget(budget) | {"seed": seed}
    else:
        settings |= WIRE_FORMATS[dialect].sampling(seed, reasoning_effort, switched, budget)
    return {name: value for name, value in settings.items() if value is not None}
