import io
import tarfile

import pytest

from skillopt_airflow.sandbox.untrusted_output import extract, packed, plain_files
from tests.sandbox.tars import member, tar_of


def test_what_was_packed_comes_out_again(tmp_path):
    (tmp_path / "files" / "0").mkdir(parents=True)
    (tmp_path / "files" / "0" / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    body = packed(tmp_path)
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
