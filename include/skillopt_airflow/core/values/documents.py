"""The contract of stored documents: one version of the project reads what another one wrote.

A reader fills in what is missing, passes over what it does not know, and refuses a document with a higher number. So a
field that is added has a default, and needs no new number; a change that the former reader would misunderstand does.
"""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt_airflow.core.errors import NewerDocument, StoreError


class Document(BaseModel):
    """Base of what is stored as a JSON object of its own. Made in code, it is as strict as any value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contract: ClassVar[int] = 1
    """The number of this kind; a document without one has number 1."""

    def to_json(self) -> dict[str, Any]:
        return {"contract": self.contract} | self.model_dump(mode="json")


Kind = TypeVar("Kind", bound=Document)
MAX_FLAWS = 1000
"""Flaws that pydantic is asked for. It lists all or none, and each takes a kilobyte."""
FLAW_CHARS = 300


def flaws(error: ValidationError, most: int = 10) -> str:
    """Return what is wrong and where, for at most `most` flaws; without the values, since a key may be among them."""
    count = error.error_count()
    if count > MAX_FLAWS:
        return f"{count} values are invalid"
    lines = error.errors(include_input=False, include_url=False)[:most]
    told = [": ".join(filter(None, (".".join(map(str, line["loc"])), line["msg"])))[:FLAW_CHARS] for line in lines]
    return "; ".join(told if len(told) == count else [*told, f"and {count - len(told)} more"])


class _Numbered(BaseModel):
    contract: int = 1


def read_document(kind: type[Kind], body: bytes, address: str) -> Kind:
    """Return the document in a body; `address` names it in errors.

    Raises:
        NewerDocument: a later version of the project wrote it.
        StoreError: it is no document of this kind.
    """
    try:
        number = _Numbered.model_validate_json(body).contract
        if number <= kind.contract:
            return kind.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise StoreError(f"{address} does not hold a {kind.__name__}: {flaws(error)}") from error
    raise NewerDocument(
        f"{address} follows contract {number} of {kind.__name__}, and this version of the project knows contract "
        f"{kind.contract}: a later version wrote it; upgrade the project where it reads this object"
    )
