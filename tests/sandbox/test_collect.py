import json
import logging
import os
from pathlib import Path

import pytest

from include.sandbox import collect
from include.sandbox.collect import TrajectoryReader, written_bytes


def line(item_id: str, **fields: object) -> bytes:
    return json.dumps({"item_id": item_id, "status": "ok"} | fields).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trajectories.jsonl"


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_lines_count_once_they_are_complete(path):
    reader = TrajectoryReader(path, ["a", "b"])
    assert reader.read() == []

    append(path, line("a") + line("b")[:10])
    assert [trajectory.item_id for trajectory in reader.read()] == ["a"]
    assert reader.missing == ("b",)

    append(path, line("b")[10:])
    assert [trajectory.item_id for trajectory in reader.read()] == ["b"]
    assert reader.missing == ()
    assert reader.read() == []


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"not json\n", "Invalid JSON"),
        (b"\n", "Invalid JSON"),
        (line("a", status="excellent"), "status"),
        (line("a", hard=1.0), "hard"),
        (line("a", calls=-1), "calls"),
        (line("stranger"), "stranger"),
        (b'{"item_id": "a", "status": "ok", "seconds": Infinity}\n', "finite"),
        (b'{"item_id": "a", "status": "ok", "answer": "\\ud800"}\n', "Invalid JSON"),
        (b'{"item_id": "a", "status": "ok", "answer": "\xff"}\n', "Invalid JSON"),
    ],
)
def test_a_bad_line_is_refused_and_the_next_one_counts(path, caplog, bad, why):
    reader = TrajectoryReader(path, ["a"])
    append(path, bad + line("a", answer="good"))
    with caplog.at_level(logging.WARNING):
        assert [trajectory.answer for trajectory in reader.read()] == ["good"]
    assert why in caplog.text


def test_a_second_line_about_an_item_is_refused(path, caplog):
    reader = TrajectoryReader(path, ["a"])
    append(path, line("a", answer="first") + line("a", answer="second"))
    assert [trajectory.answer for trajectory in reader.read()] == ["first"]


def test_an_endless_line_is_refused_without_keeping_it(path, monkeypatch, caplog):
    monkeypatch.setattr(collect, "MAX_LINE_BYTES", 100)
    reader = TrajectoryReader(path, ["a", "b"])
    append(path, b"x" * 150)
    assert reader.read() == []
    append(path, b"y" * 150)
    assert reader.read() == []
    append(path, b"z\n" + line("a"))
    assert [trajectory.item_id for trajectory in reader.read()] == ["a"]


def test_a_link_out_of_the_folder_is_not_followed(path, tmp_path, caplog):
    secret = tmp_path / "secret"
    secret.write_bytes(line("a"))
    path.symlink_to(secret)
    assert TrajectoryReader(path, ["a"]).read() == []
    assert "not a plain file" in caplog.text


def test_a_pipe_does_not_block(path, caplog):
    os.mkfifo(path)
    assert TrajectoryReader(path, ["a"]).read() == []
    assert "not a plain file" in caplog.text


def test_written_bytes_counts_blocks_and_follows_nothing(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 10_000 <= written_bytes(tmp_path, 10**6) < 100_000
    assert written_bytes(tmp_path, 5000) > 5000


def test_too_many_files_exceed_any_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MAX_ENTRIES", 3)
    for n in range(4):
        (tmp_path / str(n)).touch()
    assert written_bytes(tmp_path, 10**9) > 10**9
