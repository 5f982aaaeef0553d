"""OpenAI's responses API."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import WireFormat


class OpenAIResponses(WireFormat):
    """Responses, which have a field neither for a seed nor for switching thinking."""

    name = "openai"
    aliases = ("openai-responses",)
    path = "responses"
    address = "https://api.openai.com/v1"
    prompt_tokens = ("input_tokens",)
    completion_tokens = "output_tokens"
    usage_within = "response"
    limits = ("max_output_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        """Return whether there is a list of outputs."""
        return isinstance(document.get("output"), list)

    def sampling(
        self, seed: int | None = None, reasoning_effort: str | None = None, thinking: Literal["on", "off"] | None = None
    ) -> Mapping[str, JsonValue | None]:
        """Set the effort alone."""
        return {"openai_reasoning_effort": reasoning_effort}
