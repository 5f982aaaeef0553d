from pathlib import Path

import pytest

from local import compiled
from skillopt_airflow.core.errors import ImageMissing


def test_what_was_compiled_is_kept_for_its_architecture(tmp_path: Path):
    kept = tmp_path / "cache" / "planner==1.0-x86_64" / "planner"
    kept.mkdir(parents=True)
    (kept / "lib.so").write_bytes(b"machine code")
    (tmp_path / "packages" / "other").mkdir(parents=True)

    compiled.stage("planner==1.0", "x86_64", tmp_path / "cache", tmp_path / "packages")
    assert (tmp_path / "packages" / "planner" / "lib.so").read_bytes() == b"machine code"
    assert (tmp_path / "packages" / "other").is_dir()


def test_a_machine_without_make_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageMissing, match="needs the program make"):
        compiled.stage("planner==1.0", "aarch64", tmp_path / "cache", tmp_path / "packages")
    assert [*(tmp_path / "cache").iterdir()] == []


@pytest.mark.slow
def test_a_package_that_there_is_not_is_named_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiled, "COMPILERS", "skillopt-no-such-package==0.0.1")
    with pytest.raises(ImageMissing, match="skillopt-no-such-package"):
        compiled.stage("planner==1.0", "x86_64", tmp_path / "cache", tmp_path / "packages")
    assert [*(tmp_path / "cache").iterdir()] == []
