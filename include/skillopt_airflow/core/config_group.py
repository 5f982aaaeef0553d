"""The base of all groups of the configuration, and the kinds of values that they share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
ObjectName = Annotated[str, Field(min_length=1)]


class Group(BaseModel):
    """Base of the groups: frozen, closed to unknown keys, each field documented in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
