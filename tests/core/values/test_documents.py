import json
import re
from typing import ClassVar

import pytest
from pydantic import ValidationError

from skillopt_airflow.core.errors import NewerDocument, StoreError
from skillopt_airflow.core.values.documents import Document, flaws, read_document
from skillopt_airflow.core.values.types import Value


class Part(Value):
    name: str


class Shelf(Document):
    contract: ClassVar[int] = 2
    parts: tuple[Part, ...]
    label: str = "none"


SHELF = Shelf(parts=(Part(name="a"),), label="b")


def read(**fields: object) -> Shelf:
    return read_document(Shelf, json.dumps(fields).encode(), "s3://bucket/shelf.json")


def test_a_document_is_stored_with_its_number_and_read_again() -> None:
    assert SHELF.to_json() == {"contract": 2, "parts": [{"name": "a"}], "label": "b"}
    assert read(**SHELF.to_json()) == SHELF
    # What is missing is filled in, and what is new is passed over.
    assert read(parts=[{"name": "a", "size": 1}], color="red", contract=1).label == "none"
    # What code makes is strict.
    with pytest.raises(ValidationError, match="color"):
        Shelf(parts=(), color="red")  # type: ignore[call-arg]


def test_flaws_have_their_places_where_they_have_any_and_of_many_the_first_are_told() -> None:
    with pytest.raises(ValidationError) as raised:
        Shelf.model_validate_json('{"parts": [{"name": 1}], "label": 2}')
    assert re.fullmatch(r"parts\.0\.name: [^;]*; label: .*", flaws(raised.value))
    assert re.fullmatch(r"parts\.0\.name: [^;]*; and 1 more", flaws(raised.value, 1))
    with pytest.raises(ValidationError) as raised:
        Shelf.model_validate_json("{")
    assert flaws(raised.value).startswith("Invalid JSON: ")


def test_a_higher_number_is_refused_with_what_to_do() -> None:
    with pytest.raises(NewerDocument, match=r"^s3://bucket/shelf\.json follows contract 3 of Shelf, .* contract 2: "):
        read(contract=3, shelves="all is different")


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b'{"parts": 1}', b'{"contract": "new", "parts": []}'])
def test_what_is_no_such_document_is_named(body: bytes) -> None:
    with pytest.raises(StoreError, match=r"^s3://bucket/shelf\.json does not hold a Shelf: "):
        read_document(Shelf, body, "s3://bucket/shelf.json")
