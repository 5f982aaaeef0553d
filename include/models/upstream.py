"""The address behind a connection: what the gateway adds to a request that leaves a sandbox."""

from typing import Literal

from pydantic import Field, SecretStr

from include.core.types import Value


class Upstream(Value):
    """A model server, the one model that may be called there, and the credentials for it."""

    dialect: Literal["openai-chat", "openai", "anthropic"]
    """Wire format: chat completions, responses or messages."""
    base_url: str = Field(min_length=1)
    """Address up to and including the version, such as https://host/v1."""
    model: str = Field(min_length=1)
    """The provider's name of the model, without the dialect."""
    api_key: SecretStr
