import pytest

from skillopt_airflow.core.values.types import Message
from skillopt_airflow.core.wire_formats.wire_format import taking_turns


@pytest.mark.parametrize(
    ("said", "turns"),
    [
        ([], []),
        ([("system", "s"), ("user", "a"), ("user", "b"), ("user", "c")], [("system", "s"), ("user", "a\n\nb\n\nc")]),
        ([("user", "a"), ("tool", ""), ("user", "b")], [("user", "a\n\nb")]),
        (
            [("user", "a"), ("assistant", "b"), ("call", "f({})"), ("tool", "c")],
            [("user", "a"), ("assistant", "b\n\nf({})"), ("user", "c")],
        ),
    ],
)
def test_what_the_user_says_without_a_reply_is_one_turn(
    said: list[tuple[str, str]], turns: list[tuple[str, str]]
) -> None:
    messages = [Message.model_validate({"role": role, "content": content}) for role, content in said]
    assert [(turn.role, turn.content) for turn in taking_turns(messages)] == turns
