import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.values.pictures import (
    Part,
    Picture,
    is_picture,
    mark,
    marks_in,
    message_parts,
    parts,
    picture_suffix,
)
from skillopt_airflow.core.values.types import Message

PNG, JPEG = b"\x89PNG\r\n\x1a\nrest", b"\xff\xd8\xffrest"
PICTURES = {"a.png": PNG, "b.jpg": JPEG}


def test_pictures_stand_where_their_marks_do() -> None:
    text = f"First {mark('a.png')} then {mark('b.jpg')}{mark('a.png')} and no {mark('c.png')}."
    assert parts(text, PICTURES) == [
        "First ",
        Picture(PNG),
        " then ",
        Picture(JPEG),
        Picture(PNG),
        f" and no {mark('c.png')}.",
    ]
    assert marks_in(text) == ["a.png", "b.jpg", "a.png", "c.png"]
    assert parts("", PICTURES) == [""]
    assert parts("  \n", {}) == ["  \n"]
    assert parts(mark("../a.png"), PICTURES) == [mark("../a.png")]


@given(st.lists(st.sampled_from(["text", "\n", "[picture: ", mark("a.png"), mark("x.png"), "]"])).map("".join))
def test_no_text_is_lost_but_blanks_between_pictures(text: str) -> None:
    def written(part: Part) -> str:
        return mark("a.png") if isinstance(part, Picture) else part

    found = parts(text, PICTURES)
    assert "".join("".join(map(written, found)).split()) == "".join(text.split())
    assert sum(isinstance(part, Picture) for part in found) == marks_in(text).count("a.png")


def test_only_what_the_user_says_before_the_first_reply_has_pictures() -> None:
    text = mark("a.png")
    roles = ("system", "user", "user", "assistant", "user", "tool")
    found = [pieces for _, pieces in message_parts([Message(role=role, content=text) for role in roles], PICTURES)]
    assert found == [[text], [Picture(PNG)], [Picture(PNG)], [text], [text], [text]]


@pytest.mark.parametrize(("content", "media_type"), [(PNG, "image/png"), (JPEG, "image/jpeg")])
def test_a_picture_is_told_by_its_first_bytes(content: bytes, media_type: str) -> None:
    assert is_picture(content)
    head, _, data = Picture(content).data_url.partition(",")
    assert head == f"data:{media_type};base64"
    assert base64.b64decode(data) == content
    assert not is_picture(b"<svg/>")
    # What is no JPEG becomes a PNG.
    assert [picture_suffix(path) for path in ("a/b.JPG", "c.tiff", "d.pdf#page=2")] == [".jpg", ".png", ".png"]
