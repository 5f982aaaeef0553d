import errno
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.rollout.program import Job
from skillopt_airflow.sandbox.staging import (
    ABANDONED_SECONDS,
    KEPT_DAYS,
    LOCK_FILE,
    PREFIX,
    ContainerFolder,
    container_folder,
    container_user,
    is_complete,
    remove,
    remove_abandoned,
    stage_corpus,
    temporary_folder,
)
from skillopt_airflow.store.data.corpora import SourceCorpus
from tests.sandbox.fake_workload import SECRET_ANSWER, FakeWorkload

CONTENTS = {"a.txt": b"alpha", "1944/deep/b.txt": b"beta"}


@pytest.fixture
def workload(workload: Callable[..., FakeWorkload]) -> FakeWorkload:
    fake = workload(None)
    public = {"question": "Which one\u2028or two?", "context": "[DOC] é"}
    fake.items, fake.skill = [fake.items[0].model_copy(update={"public": public})], "# Skill\r\nné"
    return fake


@contextmanager
def stage_of(workload: Any, files: Sequence[Mapping[str, bytes]] = ()) -> Iterator[ContainerFolder]:
    with temporary_folder() as folder, container_folder(folder / "0", workload, workload.items, files) as stage:
        yield stage


def test_the_program_reads_what_the_host_staged_without_references_and_nothing_stays(workload):
    with stage_of(workload) as stage:
        job = Job.read(stage.inputs)
        texts = [path.read_text() for path in stage.path.rglob("*") if path.is_file()]
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (stage.path.parent, stage.inputs, stage.outputs)]

    assert (job.settings, job.skill) == (workload.settings, workload.skill)
    assert [(item.id, item.public) for item in job.items] == [("i-0", workload.items[0].public)]
    assert len(texts) == 3
    assert not any(SECRET_ANSWER in text for text in texts)
    assert modes == [0o700, 0o755, 0o777]
    assert not stage.path.parent.exists()


def test_the_program_is_told_in_one_piece_how_many_items_may_begin(workload):
    with stage_of(workload) as stage:
        told = stage.inputs / "released"
        assert not told.exists()
        stage.release(1234)
        assert told.read_text() == "1234"
        assert stat.S_IMODE(told.stat().st_mode) == 0o644
        assert {path.name for path in stage.path.iterdir()} == {"gateway", "in", "out"}


def test_an_items_files_are_staged_under_its_place_and_it_may_leave_some(workload):
    workload.items = [*workload.items, Item(id="b", public={}, reference={})]
    with stage_of(workload, [{}, {"in.xlsx": b"cells"}]) as stage:
        staged_files = {str(path.relative_to(stage.inputs)) for path in stage.inputs.rglob("*") if path.is_file()}
        modes = [stat.S_IMODE((stage.outputs / "files" / name).stat().st_mode) for name in ("", "0", "1")]

    assert staged_files == {"settings.json", "skill.md", "items.jsonl", "files/1/in.xlsx"}
    assert modes == [0o777] * 3

    # What worlds are made of lies where the program can remove it.
    workload.seals_files = True
    with stage_of(workload, [{"game": b"goal a"}, {"game": b"goal b"}]) as stage:
        assert (stage.sealed / "1" / "game").read_bytes() == b"goal b"
        assert stage.sealed.parent == stage.outputs
        assert [stat.S_IMODE(path.stat().st_mode) for path in (stage.sealed, stage.sealed / "0")] == [0o777] * 2
        assert not (stage.inputs / "files").exists()


def test_the_files_of_an_item_are_staged_before_those_of_the_next_are_read(workload):
    workload.items = [Item(id=str(number), public={}, reference={}) for number in range(3)]
    with temporary_folder() as folder:
        inputs = folder / "0" / "in" / "files"

        def contents():
            for number in range(3):
                assert [path.name for path in sorted(inputs.rglob("*.png"))] == [f"{n}.png" for n in range(number)]
                yield {f"{number}.png": b"a picture"}

        with container_folder(folder / "0", workload, workload.items, contents()):
            assert len(list(inputs.rglob("*.png"))) == 3


def test_containers_of_one_task_share_nothing(workload):
    with temporary_folder() as folder, container_folder(folder / "0", workload, workload.items, []) as first:
        with container_folder(folder / "1", workload, workload.items, []) as second:
            assert not second.path.is_relative_to(first.path)
            assert [one.socket.parent for one in (first, second)] == [first.path / "gateway", second.path / "gateway"]
            assert stat.S_IMODE(second.gateway.stat().st_mode) == 0o755
        assert not second.path.exists()
        assert first.inputs.exists()


def nested(folder: Path, depth: int, name: str = "deep") -> None:
    """So many folders in one another, with a file in each; deeper than any path may be long."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        os.close(os.open("file", os.O_CREAT, dir_fd=inner))
        descriptor = inner
    os.close(descriptor)


@pytest.fixture
def short_path(tmp_path_factory):
    """A temporary folder in which a socket's path is not too long."""
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp().parents[1]) as folder:
        yield Path(folder)


def test_folders_of_killed_tasks_are_swept_and_those_of_living_ones_stay(short_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    hour_ago = time.time() - ABANDONED_SECONDS - 1

    def killed(name, *, old):
        folder = short_path / f"{PREFIX}{name}"
        (folder / "gateway").mkdir(parents=True)
        (folder / LOCK_FILE).touch()
        if old:
            os.utime(folder / LOCK_FILE, (hour_ago, hour_ago))
        return folder

    abandoned, recent, foreign = killed("old", old=True), killed("new", old=False), short_path / f"{PREFIX}image-1"
    foreign.mkdir()
    with temporary_folder() as living:
        os.utime(living / LOCK_FILE, (hour_ago, hour_ago))
        with temporary_folder():
            assert living.is_dir()
        assert not abandoned.exists()
    assert {path.name for path in short_path.iterdir()} == {recent.name, foreign.name}


def test_a_name_that_is_no_lock_of_this_user_does_not_stop_a_task(short_path):
    """Any user of the host can make a folder of this name in /tmp, and whatever is in it."""
    os.mkfifo(short_path / "pipe")
    locks = [short_path / f"{PREFIX}{number}" / LOCK_FILE for number in range(4)]
    for lock in locks:
        lock.parent.mkdir()
    os.mkfifo(locks[0])
    locks[1].symlink_to(short_path / "pipe")
    locks[2].mkdir()
    locks[3].touch()
    for lock in locks:
        os.utime(lock, (0, 0), follow_symlinks=False)
    sweeper = threading.Thread(target=remove_abandoned, args=(short_path,), daemon=True)
    sweeper.start()
    sweeper.join(30)
    assert not sweeper.is_alive()


def test_only_a_stage_is_ever_removed_and_no_link_in_its_place_is_followed(short_path):
    (short_path / "precious").mkdir(mode=0o500)
    (short_path / f"{PREFIX}x").symlink_to(short_path / "precious")
    for name in ("precious", f"{PREFIX}x"):
        remove(short_path / name)
    assert stat.S_IMODE((short_path / "precious").stat().st_mode) == 0o500


def test_folders_are_removed_however_deep_and_links_are_not_followed(workload, tmp_path):
    (tmp_path / "precious").touch()
    tmp_path.chmod(0o755)
    with stage_of(workload) as stage:
        (stage.outputs / "link").symlink_to(tmp_path)
        (stage.outputs / "loop").symlink_to(stage.outputs)
        nested(stage.outputs, 1000)
    assert not stage.path.parent.exists()
    assert (tmp_path / "precious").exists()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_socket_fits_even_when_temporary_folders_are_deep(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with temporary_folder() as folder:
        assert len(str(ContainerFolder(folder / "12345").socket)) < 107
    assert not container_user().startswith("0:")


class Counted(SourceCorpus):
    """A corpus that counts how often it is fetched; `damage` changes its archives."""

    def __init__(self, folder: Path, damage: Callable[[bytes], bytes] = lambda archive: archive) -> None:
        client: Any = None
        super().__init__(folder.name, folder.parent, client)
        self.damage, self.fetched = damage, 0

    def archives(self) -> Iterator[bytes]:
        self.fetched += 1
        time.sleep(0.05)
        yield from map(self.damage, super().archives())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, content in CONTENTS.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "source"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_corpus_is_staged_once_readable_for_any_user_of_a_container(source: Path, tmp_path: Path) -> None:
    corpus = Counted(source)
    staged = stage_corpus(corpus, tmp_path)
    assert contents(staged) == CONTENTS
    assert stage_corpus(corpus, tmp_path) == staged
    assert corpus.fetched == 1
    assert {path.stat().st_mode & 0o777 for path in staged.rglob("*") if path.is_file()} == {0o444}
    assert {path.stat().st_mode & 0o777 for path in (staged, *staged.rglob("*")) if path.is_dir()} == {0o755}
    assert staged.parent.stat().st_mode & 0o777 == 0o700


def test_of_tasks_at_the_same_time_one_stages_it_and_the_others_wait(source: Path, tmp_path: Path) -> None:
    corpus = Counted(source)
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(lambda _: stage_corpus(corpus, tmp_path), range(6)))
    assert len(found) == corpus.fetched == 1


@pytest.mark.parametrize("harm", ["missing", "shorter", "link"])
def test_a_copy_that_lost_something_is_made_again(source: Path, tmp_path: Path, harm: str) -> None:
    corpus = Counted(source)
    file = stage_corpus(corpus, tmp_path) / "a.txt"
    file.unlink()
    if harm == "shorter":
        file.write_bytes(b"alp")
    if harm == "link":
        file.symlink_to(source / "a.txt")
    assert not is_complete(file.parent, corpus.manifest)
    assert contents(stage_corpus(corpus, tmp_path)) == CONTENTS
    assert corpus.fetched == 2
    assert is_complete(file.parent, corpus.manifest)


def test_another_corpus_has_another_folder_and_one_unused_for_long_is_removed(source: Path, tmp_path: Path) -> None:
    first, kept = Counted(source), tmp_path / "kept"
    kept.mkdir()
    (kept / "c.txt").write_bytes(b"gamma")
    old, young = stage_corpus(first, tmp_path), stage_corpus(Counted(kept), tmp_path)
    long_ago = time.time() - (KEPT_DAYS + 1) * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    (kept / "c.txt").write_bytes(b"delta")
    newest = stage_corpus(Counted(kept), tmp_path)
    assert not old.exists()
    assert young.exists()
    assert newest.exists()
    assert contents(stage_corpus(first, tmp_path)) == CONTENTS


def test_what_is_not_what_the_manifest_says_is_never_mounted(source: Path, tmp_path: Path) -> None:
    damaged = Counted(source, lambda archive: archive.replace(b"alpha", b"ALPHA"))
    with pytest.raises(SandboxError, match=r"a\.txt"):
        stage_corpus(damaged, tmp_path)
    assert contents(stage_corpus(Counted(source), tmp_path)) == CONTENTS


def test_a_folder_of_somebody_else_is_not_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / f"skillopt-corpora-{os.getuid()}").symlink_to(source)
    with pytest.raises(SandboxError, match="TMPDIR"):
        stage_corpus(Counted(source), tmp_path)


def test_a_full_disk_is_told_with_its_folder_and_the_remedy(workload, monkeypatch):
    def refuse(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(SandboxError, match=rf"{tempfile.gettempdir()}.*TMPDIR.*sandbox\.output_mb"), stage_of(workload):
        pass
