import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.storable import clean_parts, storable
from skillopt_airflow.core.types import Grade, Message, Score, Status, Trajectory

ANY_TEXT = st.text(st.characters(categories=["Cs", "Lu", "So", "Cc"]))


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain \u00e9 \U0001f600", "plain \u00e9 \U0001f600"),
        ("high \ud83d end", "high \ufffd end"),
        ("low \ude00 end", "low \ufffd end"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("a\0b", "a\ufffdb"),
        ("\ufeffmark", "\ufeffmark"),
    ],
)
def test_half_pairs_and_nul_are_replaced_and_all_else_stays(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(ANY_TEXT)
def test_stored_text_can_be_encoded_and_is_stable(text: str) -> None:
    stored = storable(text)
    assert stored.encode().decode() == stored == storable(stored)
    assert "\0" not in stored
    assert json.loads(json.dumps(stored)) == stored


@given(ANY_TEXT)
def test_every_value_with_text_from_outside_can_be_written(text: str) -> None:
    trajectory = Trajectory(
        item_id="a", status=Status.OK, error=text, answer=text, messages=(Message(role="tool", content=text),)
    )
    score = Score(hard=1, soft=1, feedback=text, grade=Grade(grade="correct", quote=text, reason=text))
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert Score.model_validate_json(score.model_dump_json()) == score


def test_the_parts_of_a_response_are_changed_in_place() -> None:
    text, call = SimpleNamespace(content="\ud83d"), SimpleNamespace(args={"\ud83d": [1, {"a": "b\ud83d"}, None]})
    written, none = SimpleNamespace(args='{"a": "\ud83d"}'), SimpleNamespace(args=None, content=b"\xff")
    clean_parts([text, call, written, none])
    assert text.content == "\ufffd"
    assert call.args == {"\ufffd": [1, {"a": "b\ufffd"}, None]}
    assert written.args == '{"a": "\ufffd"}'
    assert (none.args, none.content) == (None, b"\xff")
