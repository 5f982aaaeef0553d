"""Anthropic's messages."""

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import Settings, WireFormat


class AnthropicMessages(WireFormat):
    """Messages, whose usage counts what was read from or written to the cache beside the rest of the prompt."""

    name = "anthropic"
    path = "messages"
    address = "https://api.anthropic.com/v1"
    client_adds_version = True
    key_header = "x-api-key"
    headers = {"anthropic-version": "2023-06-01"}  # noqa: RUF012 - annotated in the base
    # The header anthropic-beta says the same.
    queries = (b"", b"beta=true")
    beside_prompt = ("cache_read_input_tokens", "cache_creation_input_tokens")
    usage_within = "message"
    usage_at_end = False
    limits = ("max_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        """Return whether there is a list of blocks."""
        return isinstance(document.get("content"), list)

    def sampling(self, seed: int | None, reasoning_effort: str | None, thinking: bool | None) -> Settings:
        """Set the model's own thinking; there is no field for a seed."""
        return {"thinking": thinking if reasoning_effort is None else reasoning_effort}
