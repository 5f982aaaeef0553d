"""OpenAI's responses API."""

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import Settings, WireFormat


class OpenAIResponses(WireFormat):
    """Responses, which have a field neither for a seed nor for switching or limiting thinking."""

    name = "openai"
    aliases = ("openai-responses",)
    path = "responses"
    address = "https://api.openai.com/v1"
    usage_within = "response"
    image_details = True
    limits = ("max_output_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        """Return whether there is a list of outputs that the provider didn't break off."""
        return isinstance(document.get("output"), list) and document.get("status") not in ("failed", "cancelled")

    def sampling(
        self, seed: int | None, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None
    ) -> Settings:
        """Set the effort alone."""
        return {"openai_reasoning_effort": reasoning_effort}
