import base64
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from local.standin import chat_wire, messages_wire, responses_wire, sight
from local.standin.acting import act
from local.standin.conversation import Conversation
from local.standin.picture_parts import named
from local.standin.sight import lines_of, words_in
from local.standin.stage_request import SeenTrajectory
from local.standin.transcription import transcribed, transcription
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import Message


def printed(*lines: str) -> bytes:
    image = Image.new("L", (460, 60 + 60 * len(lines)), 255)
    font = ImageFont.load_default(size=30)
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((30, 30 + 60 * number), line, fill=0, font=font)
    stored = io.BytesIO()
    image.save(stored, "PNG")
    return stored.getvalue()


PICTURES = (printed("Invoice 4711", "Total 12.50"), printed("Second page"))
Part = str | bytes


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def asked_in_chat(parts: Sequence[Part]) -> Conversation:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{in_base64(part)}", "detail": "low"}}
        for part in parts
    ]
    return chat_wire.read({"messages": [{"role": "user", "content": content}]})


def asked_in_responses(parts: Sequence[Part]) -> Conversation:
    content = [
        {"type": "input_text", "text": part}
        if isinstance(part, str)
        else {"type": "input_image", "image_url": f"data:image/png;base64,{in_base64(part)}", "detail": "auto"}
        for part in parts
    ]
    return responses_wire.read({"input": [{"role": "user", "content": content}]})


def block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": in_base64(part)}}


def asked_in_messages(parts: Sequence[Part]) -> Conversation:
    return messages_wire.read({"messages": [{"role": "user", "content": [block(part) for part in parts]}]})


@pytest.mark.parametrize("asked", [asked_in_chat, asked_in_responses, asked_in_messages])
def test_every_format_gives_the_very_pictures_in_their_places(
    asked: Callable[[Sequence[Part]], Conversation],
) -> None:
    conversation = asked(["Compare ", PICTURES[0], " with ", PICTURES[1], " please."])

    assert conversation.pictures == PICTURES
    expected = "Compare [picture: picture-1.png] with [picture: picture-2.png] please."
    assert " ".join(named(conversation.user_text).split()) == expected


def test_an_agents_marks_stand_where_they_are_written() -> None:
    conversation = asked_in_responses([PICTURES[0], "What is on [picture: picture-1.png]?"])
    assert named(conversation.user_text) == "What is on [picture: picture-1.png]?"


@pytest.mark.parametrize("url", ["https://example.com/a.png", "data:image/png;base64,&&", "data:image/png;base64,"])
def test_what_is_no_picture_of_the_request_is_refused(url: str) -> None:
    with pytest.raises(ModelError, match="part of the request"):
        chat_wire.read({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})


def test_an_agent_that_is_told_to_looks_at_each_picture_once() -> None:
    paths = ["/work/in/picture-1.png", "/work/in/picture-2.png"]
    told = "".join(f"\n\nBefore you answer, look at the picture {path} with the tool Read." for path in paths)
    said: list[dict[str, Any]] = [{"role": "user", "content": [block(f"What is on [picture: picture-1.png]?{told}")]}]

    def request() -> Conversation:
        system = "The following skills are available for use with the Skill tool:\n- other: x"
        return messages_wire.read({"system": system, "messages": said, "tools": [{"name": "Read"}]})

    for path, picture in zip(paths, PICTURES, strict=True):
        (call,) = act(request()).calls
        assert (call.name, json.loads(call.arguments)) == ("Read", {"file_path": path})
        said.append({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Read", "input": {}}]})
        content = [{"type": "tool_result", "tool_use_id": "a", "content": [block(picture)]}]
        said.append({"role": "user", "content": content})
    assert request().pictures == PICTURES
    assert not act(request()).calls


def test_print_is_read_line_by_line() -> None:
    first, second = lines_of(words_in(PICTURES[0]))
    assert [word.text for word in first] == ["Invoice", "4711"]
    assert [word.text for word in second] == ["Total", "12.50"]
    assert first[0].left < first[1].left
    assert first[0].top < second[0].top
    assert abs(first[0].left - words_in(PICTURES[0], enlarged=2)[0].left) <= 3


def test_a_colour_is_found_where_it_is_about_that() -> None:
    image = Image.new("RGB", (4, 1), (200, 30, 40))
    image.putpixel((1, 0), (190, 40, 60))
    image.putpixel((2, 0), (200, 30, 70))
    image.putpixel((3, 0), (255, 255, 255))
    assert sight.coloured(image, (200, 30, 40)).tobytes() == bytes([255, 255, 0, 0])


def test_a_picture_is_read_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    run = sight.subprocess.run

    def counted(*arguments: Any, **options: Any) -> object:
        reads.append(arguments)
        return run(*arguments, **options)

    monkeypatch.setattr(sight.subprocess, "run", counted)
    picture = printed("Read me once")
    threads = [threading.Thread(target=words_in, args=(picture,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1


def test_a_damaged_picture_and_a_missing_reader_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="cannot be opened"):
        words_in(PICTURES[0][:200])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ModelError, match="apt-get install tesseract-ocr"):
        words_in(printed("Nobody reads this"))


def test_a_server_answers_what_cannot_be_seen_with_an_error(standin_url: str) -> None:
    content = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    request = urllib.request.Request(f"{standin_url}/chat/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(request)
    with failed.value as answer:
        assert answer.code == 400
        assert "part of the request" in answer.read().decode()


def test_a_transcription_is_found_in_the_trajectory() -> None:
    seen = ["Invoice 4711\nTotal 12.50", ""]
    reply = f"{transcription(seen)}<answer>x</answer>"
    messages = (Message(role="user", content="?"), Message(role="assistant", content=reply))
    assert transcribed(SeenTrajectory(item_id="a", messages=messages)) == seen
    assert transcribed(SeenTrajectory(item_id="a", messages=messages[:1])) == []
