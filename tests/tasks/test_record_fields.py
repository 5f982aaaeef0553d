import re
from typing import Any

import pytest

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.record_fields import (
    MAX_SHOWN,
    identity_at,
    list_at,
    short_repr,
    text_at,
    texts_at,
    value_at,
    whole_number_at,
    without,
)

RECORD: dict[str, Any] = {
    "id": "x",
    "no": 8,
    "yes": True,
    "blank": " ",
    "words": ["a", "b"],
    "mixed": ["a", 1],
    "mcq": {"question": "Which?", "choices": [{"text": "a"}, "b"]},
}


def test_fields_are_read_by_their_path() -> None:
    assert text_at(RECORD, "id") == "x"
    assert text_at(RECORD, "mcq", "question") == "Which?"
    assert texts_at(RECORD, "words") == ["a", "b"]
    assert text_at(RECORD, "mcq", "choices", 0, "text") == "a"
    assert list_at(RECORD, "mcq", "choices") == [{"text": "a"}, "b"]
    assert (identity_at(RECORD, "id"), identity_at(RECORD, "no")) == ("x", "8")
    assert whole_number_at(RECORD, "no") == 8
    assert short_repr("x" * 200) == "'" + "x" * (MAX_SHOWN - 1) + "..."


@pytest.mark.parametrize(
    ("read", "path", "place", "value"),
    [
        (text_at, ["blank"], "blank", "' '"),
        (text_at, ["mcq", "answer"], "mcq.answer", "None"),
        (text_at, ["nothing", "answer"], "nothing", "None"),
        (texts_at, ["mixed"], "mixed", "['a', 1]"),
        (text_at, ["mcq", "choices", 1, "text"], "mcq.choices[1]", "'b'"),
        (text_at, ["id", 0], "id", "'x'"),
        (identity_at, ["yes"], "yes", "True"),
        (whole_number_at, ["yes"], "yes", "True"),
    ],
)
def test_what_is_missing_is_named(read: Any, path: list[str], place: str, value: str) -> None:
    with pytest.raises(DataError, match=rf"^{re.escape(place)}: expected .* got {re.escape(value)}$"):
        read(RECORD, *path)


NESTED: dict[str, Any] = {"a": {"b": [{"c": 1, "d": 2}, {"c": 3}, 5]}, "a.x": "own", "n": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a.x", "own"),
        ("a.b", NESTED["a"]["b"]),
        ("a.b.c", [1, 3, None]),
        ("a.b.c.d", [None, None, None]),
        ("n.x", None),
        ("none.x", None),
        ("a.", None),
    ],
)
def test_a_key_may_be_a_path(key: str, value: object) -> None:
    assert value_at(NESTED, key) == value


def test_a_record_without_a_value_keeps_all_others() -> None:
    assert without(NESTED, "a.b.c") == {"a": {"b": [{"d": 2}, {}, 5]}, "a.x": "own", "n": None}
    assert without(NESTED, "a.x") == {"a": NESTED["a"], "n": None}
    assert without(NESTED, "none.x") == without(NESTED, "n.x") == NESTED
    assert NESTED["a"]["b"][0] == {"c": 1, "d": 2}
