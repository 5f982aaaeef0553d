"""The wire formats of model servers by name, one object per file.

Start with wire_format.py, the base of all.
Translation between formats is in gateway/translation.py.
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

# The name of a wire format in connections and settings; type checkers don't support computed Literals.
if TYPE_CHECKING:
    Dialect = str
else:
    Dialect = Literal[tuple(WIRE_FORMATS)]
