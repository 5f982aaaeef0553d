import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.locked_document import LockedDocument

HEAD = 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("part", [0, 1, 5])
@pytest.mark.parametrize("after", [b"B", b"after it"])
def test_who_is_killed_while_it_writes_leaves_the_document_as_it_was(path, monkeypatch, writes, part, after):
    write, done = os.pwrite, []

    def killed(descriptor: int, text: bytes, place: int) -> int:
        if len(done) < writes:
            done.append(text)
            return write(descriptor, text, place)
        if not writes:
            # The document may be cut anywhere; the few bytes of the head are there or not.
            write(descriptor, text[:part], place)
        raise Killed

    one = LockedDocument(path)
    for before in (b"before", b"before it"):
        one.write(before)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", killed)
            done.clear()
            with pytest.raises(Killed):
                one.write(after)
        assert LockedDocument(path).read() == before
    one.write(after)
    assert LockedDocument(path).read() == after


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
def test_the_last_document_holds_and_the_file_stays_small(tmp_path_factory, documents):
    path = tmp_path_factory.mktemp("documents") / "state"
    one, two = LockedDocument(path), LockedDocument(path)
    assert one.read() == b""
    for number, document in enumerate(documents):
        (one, two)[number % 2].write(document)
        assert one.read() == two.read() == document
    assert path.stat().st_size <= HEAD + 3 * max(map(len, documents))
    one.close()
    two.close()


@pytest.mark.parametrize("content", [b"x", b"\xff" * HEAD, b"\xff" * 100])
def test_a_damaged_head_leaves_an_empty_document(path, content):
    path.write_bytes(content)
    one = LockedDocument(path)
    assert one.read() == b""
    one.write(b"new")
    assert one.read() == b"new"


def test_a_closed_document_touches_no_other_file(path, tmp_path):
    one = LockedDocument(path)
    one.close()
    with (tmp_path / "other").open("w+b"), pytest.raises(OSError, match="descriptor"):
        one.write(b"x")
    assert (tmp_path / "other").read_bytes() == b""
