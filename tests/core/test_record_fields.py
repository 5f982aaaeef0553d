from typing import Any

import pytest

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.record_fields import (
    MAX_SHOWN,
    found_at,
    identity_at,
    list_at,
    shown,
    text_at,
    texts_at,
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


@pytest.mark.parametrize(
    ("read", "path", "said"),
    [
        (text_at, ["blank"], "blank: expected a non-empty text, got ' '"),
        (text_at, ["no"], "no: expected a non-empty text, got 8"),
        (text_at, ["mcq", "answer"], "mcq.answer: expected a non-empty text, got None"),
        (text_at, ["nothing", "answer"], "nothing: expected an object, got None"),
        (text_at, ["mcq", "question", "text"], "mcq.question: expected an object, got 'Which?'"),
        (texts_at, ["mixed"], "mixed: expected a list of at least one non-empty text, got ['a', 1]"),
        (texts_at, ["id"], "id: expected a list of at least one non-empty text, got 'x'"),
        (text_at, ["mcq", "choices", 1, "text"], "mcq.choices[1]: expected an object, got 'b'"),
        (text_at, ["words", 0, "text"], "words[0]: expected an object, got 'a'"),
        (text_at, ["id", 0], "id: expected a list of at least one entry, got 'x'"),
        (list_at, ["mcq", "question"], "mcq.question: expected a list of at least one entry, got 'Which?'"),
        (identity_at, ["blank"], "blank: expected a text or a whole number, got ' '"),
        (identity_at, ["yes"], "yes: expected a text or a whole number, got True"),
        (whole_number_at, ["id"], "id: expected a number, got 'x'"),
        (whole_number_at, ["yes"], "yes: expected a number, got True"),
    ],
)
def test_what_is_missing_is_named(read: Any, path: list[str], said: str) -> None:
    with pytest.raises(DataError) as raised:
        read(RECORD, *path)
    assert str(raised.value) == said


def test_a_long_value_is_shown_shortened() -> None:
    assert shown("x" * 200) == "'" + "x" * (MAX_SHOWN - 1) + "..."


NESTED: dict[str, Any] = {"a": {"b": [{"c": 1, "d": 2}, {"c": 3}, 5]}, "a.x": "own", "n": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a.x", "own"),
        ("a.b", NESTED["a"]["b"]),
        ("a.b.c", [1, 3, None]),
        ("a.b.c.d", [None, None, None]),
        ("n", None),
        ("n.x", None),
        ("none", None),
        ("none.x", None),
        ("a.", None),
    ],
)
def test_a_key_may_be_a_path(key: str, value: object) -> None:
    assert found_at(NESTED, key) == value


def test_a_record_without_a_value_keeps_all_others() -> None:
    assert without(NESTED, "a.b.c") == {"a": {"b": [{"d": 2}, {}, 5]}, "a.x": "own", "n": None}
    assert without(NESTED, "a.x") == {"a": NESTED["a"], "n": None}
    assert without(NESTED, "none.x") == without(NESTED, "n.x") == NESTED
    assert NESTED["a"]["b"][0] == {"c": 1, "d": 2}
