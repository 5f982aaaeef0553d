"""`local/bootstrap.sh` with a Python that only notes what it is asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from local.home import PROJECT

PYTHON = """#!/bin/sh
echo "$*" >>"$NOTED"
case "$*" in
--version) echo Python 3.12.0 ;;
"-m pip install "*) cat >"$NOTED-lines" ;;
"-m venv --clear "*)
    rm -rf "$4"
    sleep 0.5
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    cp "$0" "$4/bin/uv"
    ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("requirements-local.txt", "pyproject.toml"):
        (folder / name).write_text("")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return folder


def start(folder: Path) -> subprocess.Popen[str]:
    """Begin the script in a folder, as a shell that came there by this path."""
    outside = folder.parent
    variables = {"PWD": str(folder), "PYTHON3": str(outside / "python"), "NOTED": str(outside / "noted")}
    command = ["sh", str(PROJECT / "local" / "bootstrap.sh"), ".local/venv", "requirements-local.txt"]
    return subprocess.Popen(command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True)


def times_made(folder: Path) -> int:
    return (folder.parent / "noted").read_text().count("-m venv --clear")


def test_another_path_to_the_folder_finds_the_same_environment(project: Path) -> None:
    link = project.with_name("link")
    link.symlink_to(project)
    for folder in (project, link):
        assert start(folder).communicate()[0].startswith("Creating") is (folder is project)
    assert times_made(project) == 1


def test_uv_is_the_locks_and_every_package_of_the_lock_is_checked_by_its_hash(project: Path) -> None:
    uv = "uv==1.2.3 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
    lock = f"tzdata==1.0 \\\n    --hash=sha256:22\n{uv}uvicorn==1.0 \\\n    --hash=sha256:33\n"
    (project / "requirements-local.txt").write_text(lock)
    process = start(project)
    process.communicate()
    assert process.returncode == 0
    assert (project.parent / "noted-lines").read_text() == uv
    *_, by_pip, by_uv, own = [line for line in (project.parent / "noted").read_text().splitlines() if "install" in line]
    assert by_pip.startswith("-m pip install")
    assert by_pip.endswith("--no-deps --require-hashes -r /dev/stdin")
    assert by_uv.endswith("--only-binary :all: --require-hashes -r requirements-local.txt")
    # Its build backend is a package of the lock.
    assert own.endswith("--no-deps --no-build-isolation --editable .")


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock there is no lock")
def test_of_two_at_once_one_waits_for_the_environment_of_the_other(project: Path) -> None:
    both = [start(project), start(project)]
    for each in both:
        each.communicate()
    assert [each.returncode for each in both] == [0, 0]
    assert times_made(project) == 1
