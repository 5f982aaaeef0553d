"""How a model is asked to sample and to think, in the words of pydantic-ai's model settings."""

from typing import Literal

from pydantic import JsonValue

from skillopt_airflow.core.config import Effort
from skillopt_airflow.core.types import JsonObject

THOUGHT_END = "</think>"


def without_thinking(answer: str) -> str:
    """An answer without the thinking that a server left in it.

    Some chat templates, such as Qwen3.5's, open the block themselves: only its end is in the answer, and pydantic-ai
    looks for both. A server with a reasoning parser leaves neither.
    """
    return answer.rpartition(THOUGHT_END)[2]


def sampling_settings(
    dialect: Literal["openai-chat", "openai", "anthropic"] | None,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    reasoning_effort: Effort | None = None,
    thinking: Literal["on", "off"] | None = None,
    timeout: float | None = None,
) -> JsonObject:
    """The settings of a call; what is None is left to the server.

    Args:
        dialect: the wire format; None for a provider with one of its own, and for several of them.
        max_tokens: most tokens of the answer, those of its thinking included.
        temperature: sampling temperature.
        seed: sampling seed; neither responses nor messages have a field for it.
        reasoning_effort: how much the model thinks before it answers.
        thinking: for chat completions the switch in the chat template of servers like vLLM, for messages and other
            providers the model's own thinking; the responses API has none but the effort.
        timeout: seconds of one try.
    """
    settings: dict[str, JsonValue | None] = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "timeout": timeout,
    }
    if dialect in ("anthropic", None):
        switched = None if thinking is None else thinking == "on"
        settings["thinking"] = switched if reasoning_effort is None else reasoning_effort
    if dialect != "anthropic":
        # pydantic-ai's `thinking` would leave it out for every model that it does not know to think.
        settings["openai_reasoning_effort"] = reasoning_effort
    if dialect in ("openai-chat", None):
        settings["seed"] = seed
    if dialect == "openai-chat" and thinking is not None:
        settings["extra_body"] = {"chat_template_kwargs": {"enable_thinking": thinking == "on"}}
    return {name: value for name, value in settings.items() if value is not None}
