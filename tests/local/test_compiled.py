import subprocess
import sys
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


def test_the_compilers_are_found_from_a_checkout_with_a_space_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    python = tmp_path / "a checkout" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    python.chmod(0o755)
    said: list[str] = []

    def install(folder: Path, into: str, what: list[str], variables: dict[str, str]) -> None:
        (folder / into).mkdir()
        (folder / into / "lib.so").touch()
        if variables:
            # As make runs it, by its bare name.
            command = f"{variables['CC']} -c main.c"
            said.append(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)

    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(compiled, "_install", install)
    cache = python.parent / "cache"
    compiled.stage("planner==1.0", "x86_64", cache, tmp_path / "packages")
    assert [line.split()[1:] for line in said] == [
        f"-m ziglang cc -target x86_64-linux-{compiled.C_LIBRARY} -g0 -c main.c".split()
    ]
    assert [path.name for path in cache.iterdir()] == ["planner==1.0-x86_64"]
    assert (tmp_path / "packages" / "lib.so").is_file()


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
