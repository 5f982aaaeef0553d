import json

import pytest

from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.rollout.harnesses import tools
from skillopt_airflow.ui.pages import MAX_CHARS
from skillopt_airflow.ui.rollout_list import MAX_CONVERSATION_CHARS, Conversation, ToolCall, conversation


def shown(*turns: tuple[str, str], thumbnails: dict[str, bytes] | None = None) -> Conversation:
    messages = tuple(Message.model_validate({"role": role, "content": content}) for role, content in turns)
    trajectory = Trajectory(item_id="a", status=Status.OK, messages=messages)
    return conversation(trajectory, thumbnails or {})


def texts(found: Conversation) -> list[list[str]]:
    return [[part.text for part in turn.parts] for turn in found.turns]


def test_calls_of_tools_have_their_arguments_results_and_seconds() -> None:
    found = shown(
        ("system", "skill"),
        ("user", "What is the capital of Bulgaria?"),
        ("assistant", "I look it up."),
        ("call", 'search({"query": "capital of Bulgaria", "most": 3})'),
        ("call", 'read({"name": "a.txt"})'),
        ("tool", "[search, 1.2 s]\nSofia"),
        ("tool", "[read]\n"),
        ("assistant", "Sofia"),
    )
    assert texts(found) == [
        ["skill"],
        ["What is the capital of Bulgaria?"],
        ["I look it up."],
        ["Sofia"],
        [""],
        ["Sofia"],
    ]
    search, read = found.turns[2].calls
    assert (search.tool, json.loads(search.arguments)) == ("search", {"query": "capital of Bulgaria", "most": 3})
    assert read == ToolCall("read", '{\n  "name": "a.txt"\n}')
    assert [(turn.label, turn.seconds) for turn in found.turns[3:5]] == [
        ("Result of search", 1.2),
        ("Result of read", None),
    ]


def test_a_command_of_an_agent_is_a_call() -> None:
    found = shown(("call", "$ ls -l\ncat a"), ("tool", "a.txt\n[exit status 0]"), ("assistant", "$ 5"))
    assert found.turns[0].calls == (ToolCall("command", "ls -l\ncat a"),)
    assert texts(found) == [[], ["a.txt\n[exit status 0]"], ["$ 5"]]
    assert [turn.label for turn in found.turns] == ["Target", "Tool", "Target"]


@pytest.mark.parametrize("said", ['I look.\nread({"name": "a"})', "$ rm -r /", "[read, 1.0 s]\nfound"])
def test_a_text_that_looks_like_a_call_is_shown_as_a_text(said: str) -> None:
    found = shown(("assistant", said), ("tool", "next"))
    assert (found.turns[0].label, found.turns[0].calls, texts(found)[0]) == ("Target", (), [said])


@pytest.mark.parametrize(
    ("stored", "call"),
    [
        ("apply_patch(update a.py)", ("apply_patch", "update a.py")),
        ('f({"a": 1', ("f", '{"a": 1')),
        ("odd", ("tool", "odd")),
        (f"f({'[' * 5000})", ("f", "[" * 5000)),
    ],
)
def test_a_call_without_readable_arguments_is_shown_as_it_is_stored(stored: str, call: tuple[str, str]) -> None:
    assert shown(("call", stored)).turns[0].calls == (call,)


def test_a_picture_stands_where_its_mark_is() -> None:
    jpeg = b"\xff\xd8\xff picture"
    found = shown(
        ("user", "Look: [picture: a.png] Well?"),
        ("assistant", "[picture: a.png]"),
        ("user", "[picture: a.png]"),
        thumbnails={"a.png": jpeg},
    )
    assert [part.thumbnail for part in found.turns[0].parts] == [b"", jpeg, b""]
    assert texts(found)[1:] == [["[picture: a.png]"], ["[picture: a.png]"]]


def test_long_texts_are_cut_and_so_are_long_conversations() -> None:
    found = shown(*[("user", "x" * 1_000_000)] * 30)
    assert len(found.turns[0].parts[0].text) <= MAX_CHARS
    assert "characters left out" in found.turns[0].parts[0].text
    assert sum(len(part.text) for turn in found.turns for part in turn.parts) <= MAX_CONVERSATION_CHARS
    assert found.left_out == 30 - len(found.turns) > 0


def test_the_form_of_the_tools_harness_is_the_one_that_is_read() -> None:
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

    history = [
        ModelResponse(parts=[TextPart("Wait."), ToolCallPart("search", {"query": "a\nb"}, "1")]),
        ModelRequest(parts=[ToolReturnPart("search", "found", "1", metadata=0.25)]),
    ]
    asked, told = conversation(
        Trajectory(item_id="a", status=Status.OK, messages=tuple(tools._trace(history))), {}
    ).turns
    assert [part.text for part in asked.parts] == ["Wait."]
    assert [(call.tool, json.loads(call.arguments)) for call in asked.calls] == [("search", {"query": "a\nb"})]
    assert (told.label, told.seconds, told.parts[0].text) == ("Result of search", 0.2, "found")
