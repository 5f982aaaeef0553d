"""The base of all groups of the configuration."""

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Base of the groups: frozen, closed to unknown keys, each field documented in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
