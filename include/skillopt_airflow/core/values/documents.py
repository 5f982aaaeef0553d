"""The contract of stored documents between versions of the project.

A reader fills in missing fields, ignores unknown ones, and rejects a document with a higher number. A new field needs
a default, but no new number; a change that earlier readers would misunderstand needs one.
"""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt_airflow.core.errors import NewerDocument, StoreError


class Document(BaseModel):
    """Base of values that are stored as separate JSON objects. In code it is as strict as other values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: ClassVar[int] = 1
    """The number of this kind of document; 1 if a stored document has none."""

    def to_json(self) -> dict[str, Any]:
        return {"contract": self.contract} | self.model_dump(mode="json")


Kind = TypeVar("Kind", bound=Document)
MAX_FLAWS = 1000
"""Limit above which flaws are only counted: pydantic lists all or none, and each takes a kilobyte."""
FLAW_CHARS = 300


def flaws(error: ValidationError, most: int = 10) -> str:
    """Return at most `most` flaws with their places, without the values, which may include a secret key."""
    count = error.error_count()
    if count > MAX_FLAWS:
        return f"{count} values are invalid"
    lines = error.errors(include_input=False, include_url=False)[:most]
    shown = [": ".join(filter(None, (".".join(map(str, line["loc"])), line["msg"])))[:FLAW_CHARS] for line in lines]
    return "; ".join(shown if len(shown) == count else [*shown, f"and {count - len(shown)} more"])


class _Numbered(BaseModel):
    contract: int = 1


def read_document(kind: type[Kind], body: bytes, address: str) -> Kind:
    """Return the document in a body; `address` names it in errors.

    Raise NewerDocument if a later version of the project wrote it, and StoreError if it isn't of this kind.
    """
    try:
        number = _Numbered.model_validate_json(body).contract
        if number <= kind.contract:
            return kind.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise StoreError(f"{address} does not hold a {kind.__name__}: {flaws(error)}") from error
    raise NewerDocument(
        f"{address} follows contract {number} of {kind.__name__}, but this version of the project only knows contract "
        f"{kind.contract}: a later version wrote it. Upgrade the project where it reads this object"
    )
