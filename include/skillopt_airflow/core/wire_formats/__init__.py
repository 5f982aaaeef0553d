"""The wire formats of model servers, by name; each is one object in a file of its own.

Enter by wire_format.py, the base of all.
Translating between formats is the work of gateway/translation.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from skillopt_airflow.core.wire_formats.anthropic_messages import AnthropicMessages
from skillopt_airflow.core.wire_formats.openai_chat import OpenAIChat
from skillopt_airflow.core.wire_formats.openai_responses import OpenAIResponses
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

WIRE_FORMATS: Mapping[str, WireFormat] = {
    "openai-chat": OpenAIChat(),
    "openai": OpenAIResponses(),
    "anthropic": AnthropicMessages(),
}

# The name of a wire format, as connections and settings write it; a type checker takes no computed Literal.
if TYPE_CHECKING:
    Dialect = str
else:
    Dialect = Literal[tuple(WIRE_FORMATS)]
