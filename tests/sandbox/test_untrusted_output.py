import io
import json
import logging
import os
import shutil
import tarfile
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from socket import AF_UNIX, socket
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from skillopt_airflow.core.values.types import MAX_FILES, Rollout, Score, Status, Trajectory
from skillopt_airflow.sandbox import untrusted_output as collect
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.sandbox.untrusted_output import (
    FileReader,
    TrajectoryReader,
    extract,
    pack_folder,
    plain_files,
    written_bytes,
)
from skillopt_airflow.store.tables.parquet import RolloutRow, rollouts_from_table, rollouts_to_table
from tests.sandbox.tars import member, tar_of
from tests.sandbox.test_staging import nested


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
        (line("a", status="excellent"), "status"),
        (line("a", hard=1.0), "hard"),
        (line("a", calls=-1), "calls"),
        (line("stranger"), "stranger"),
        (b'{"item_id": "a", "status": "ok", "seconds": Infinity}\n', "finite"),
        (b'{"item_id": "a", "status": "ok", "started": NaN}\n', "finite"),
        (line("a", started=1e300), "started"),
        (line("a", calls=10**20), "calls"),
        (b'{"item_id": "a", "status": "ok", "answer": "\\ud800"}\n', "Invalid JSON"),
    ],
)
def test_a_bad_line_is_refused_and_the_next_one_counts_once(path, caplog, bad, why):
    reader = TrajectoryReader(path, ["a"])
    append(path, bad + line("a", answer="good") + line("a", answer="second"))
    with caplog.at_level(logging.WARNING):
        assert [trajectory.answer for trajectory in reader.read()] == ["good"]
    assert why in caplog.text


def test_an_endless_line_is_refused_without_keeping_it(path, monkeypatch, caplog):
    monkeypatch.setattr(collect, "MAX_LINE_BYTES", 100)
    reader = TrajectoryReader(path, ["a", "b"])
    for _ in range(2):
        append(path, b"x" * 150)
        assert reader.read() == []
    append(path, b"z\n" + line("a"))
    assert [trajectory.item_id for trajectory in reader.read()] == ["a"]


def test_of_a_flood_of_lines_few_are_logged_and_the_rest_is_not_read(path, caplog):
    reader = TrajectoryReader(path, ["a", "b"])
    append(path, line("a") + b"\n" * 20_000_000)
    assert [trajectory.item_id for trajectory in reader.read()] == ["a"]
    assert reader.is_flooded
    append(path, line("b"))
    assert reader.read() == []
    assert reader.missing == ("b",)
    assert len(caplog.messages) == collect.MAX_REFUSED_LOGGED + 1


def test_a_name_of_a_field_forges_no_line_of_the_log(path, caplog):
    reader = TrajectoryReader(path, ["a"])
    append(path, line("a", **{"x\nFORGED \x1b[31m line": 1}))
    assert reader.read() == []
    assert "\n" not in caplog.messages[0]
    assert "\x1b" not in caplog.messages[0]


def test_what_is_no_plain_file_is_not_read(path, tmp_path, caplog):
    (tmp_path / "secret").write_bytes(line("a"))
    for make in (lambda: path.symlink_to(tmp_path / "secret"), lambda: os.mkfifo(path)):
        make()
        assert TrajectoryReader(path, ["a"]).read() == []
        path.unlink()
    assert caplog.text.count("not a plain file") == 2


def test_written_bytes_counts_blocks_and_follows_nothing(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 10_000 <= written_bytes(tmp_path, 10**6) < 100_000
    assert written_bytes(tmp_path, 5000) > 5000


def test_too_many_files_and_what_no_one_can_look_into_exceed_any_limit(tmp_path, monkeypatch):
    nested(tmp_path, 25, "x" * 200)
    assert written_bytes(tmp_path, 10**9) > 10**9
    shutil.rmtree(tmp_path / ("x" * 200))
    (tmp_path / "file").touch()
    assert written_bytes(tmp_path, 10**9) <= 10**9
    monkeypatch.setattr(collect, "MAX_ENTRIES", 0)
    assert written_bytes(tmp_path, 10**9) > 10**9


def test_a_file_that_is_gone_by_now_hides_none_of_the_others(tmp_path, monkeypatch):
    (tmp_path / "stays").write_bytes(b"x" * 10_000)
    with os.scandir(tmp_path) as found:
        (stays,) = found
    gone = SimpleNamespace(stat=Mock(side_effect=FileNotFoundError), is_dir=lambda **_: False)
    monkeypatch.setattr("os.scandir", lambda _: nullcontext([gone, stays]))
    assert written_bytes(tmp_path, 10**6) >= 10_000


def test_the_largest_numbers_that_a_row_may_have_can_be_stored(path):
    most = {"calls": 10**12, "prompt_tokens": 10**12, "completion_tokens": 10**12, "started": 1e11, "seconds": 1e11}
    append(path, line("a", **most))
    (accepted,) = TrajectoryReader(path, ["a"]).read()
    rollout = Rollout(trajectory=accepted, score=Score(hard=1.0, soft=1.0))
    table = rollouts_to_table([RolloutRow("r", "f", "s", "t", "i", datetime.now(UTC), rollout)])
    assert rollouts_from_table(table)[0].rollout == rollout


def trajectory(*names: str) -> Trajectory:
    return Trajectory(item_id="b", status=Status.OK, files=names)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Where item b, the second one, leaves its files."""
    folder = tmp_path / "out" / "files" / "1"
    folder.mkdir(parents=True)
    return folder


def collected(left: Path, *names: str, limit: int = 100) -> Outcome:
    return FileReader(left.parent.parent, ["a", "b"], limit).outcome(trajectory(*names))


def test_files_that_an_item_left_come_with_its_row(left):
    (left / "one.xlsx").write_bytes(b"1")
    (left / "unnamed").write_bytes(b"2")
    (left.parent / "0").mkdir()
    (left.parent / "0" / "other").write_bytes(b"3")
    outcome = collected(left, "one.xlsx", "one.xlsx", "absent", "other")
    assert outcome.files == {"one.xlsx": b"1"}
    assert outcome.trajectory.files == ("one.xlsx",)


def test_what_is_no_plain_file_is_refused(left, caplog, monkeypatch):
    monkeypatch.chdir(left)
    Path("link").symlink_to("/etc/hostname")
    os.mkfifo("pipe")
    Path("folder").mkdir()
    with socket(AF_UNIX) as listener:
        listener.bind("socket")
    (left / "good").write_bytes(b"1")
    assert collected(left, "link", "pipe", "folder", "socket", "good").files == {"good": b"1"}
    assert caplog.text.count("Refused a file") == 4


def test_only_plain_names_are_looked_up(left, caplog):
    (left.parent / "0").mkdir()
    (left.parent / "0" / "other").write_bytes(b"3")
    for name in ("../0/other", "/etc/hostname", ".", "", ".hidden", "a/b", "x" * 101, "a\0b"):
        caplog.clear()
        outcome = collected(left, name)
        assert (outcome.files, outcome.trajectory.files) == ({}, ())
        assert "plain name" in caplog.text


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_on_the_way_to_a_file_is_not_followed(left, tmp_path, depth, caplog):
    secret = tmp_path / "elsewhere" / "files" / "1" / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_bytes(b"s")
    folder, target = [left, *left.parents][depth], secret.parents[depth]
    folder.rename(tmp_path / "aside")
    folder.symlink_to(target)
    assert not collected(left, "secret").files
    assert "Refused" in caplog.text


def test_files_of_one_container_have_a_limit_and_an_item_one_of_their_number(left, caplog):
    for name in ("first", "second", "third"):
        (left / name).write_bytes(b"x" * 40)
    assert list(collected(left, "first", "second", "third").files) == ["first", "second"]
    (left / "sparse").touch()
    os.truncate(left / "sparse", 10**12)
    assert list(collected(left, "sparse", "first").files) == ["first"]
    names = [f"f{n}" for n in range(MAX_FILES + 5)]
    for name in names:
        (left / name).touch()
    assert len(collected(left, *names).files) == MAX_FILES


def test_what_was_packed_comes_out_again(tmp_path):
    (tmp_path / "files" / "0").mkdir(parents=True)
    (tmp_path / "files" / "0" / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    body = pack_folder(tmp_path)
    assert dict(plain_files(body, 100)) == {"b.txt": b"two", "files/0/a.txt": b"one"}
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert {(member.uid, member.gid, member.uname) for member in archive} == {(0, 0, "")}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE]
)
def test_only_plain_files_are_taken(kind):
    body = tar_of(member("bad", kind=kind), member("good", b"1"))
    assert dict(plain_files(body, 10)) == {"good": b"1"}


def test_contents_above_the_limit_are_refused():
    with pytest.raises(OSError, match="more than 5 bytes"):
        list(plain_files(tar_of(member("a", b"123"), member("b", b"123")), 5))


@pytest.mark.parametrize("body", [b"no tar at all" * 100, tar_of(member("a", b"x" * 600))[:700]])
def test_what_is_no_tar_is_refused(body):
    with pytest.raises(OSError, match="tar"):
        list(plain_files(body, 1000))


@pytest.mark.parametrize("old", [False, True])
def test_an_archive_of_ones_own_is_extracted_on_an_old_python_too(tmp_path, monkeypatch, old):
    extractall = tarfile.TarFile.extractall
    # Debian 12's own Python 3.11.2 is an old one itself.
    if old and hasattr(tarfile, "data_filter"):
        monkeypatch.delattr(tarfile, "data_filter")
        monkeypatch.setattr(
            tarfile.TarFile, "extractall", lambda self, path: extractall(self, path, filter="fully_trusted")
        )
    body = tar_of(member("a.txt", b"one"))
    extract((body[n : n + 1] for n in range(len(body))), tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"one"
