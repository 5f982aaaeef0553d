"""`make down` and `make clean` where the virtual environment cannot import the project."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from platform_control import PROJECT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with data, whose Python has no packages."""
    shutil.copy(PROJECT / "Makefile", tmp_path)
    python = tmp_path / ".local" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'psutil'\" >&2\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / ".local" / "s3").mkdir()
    return tmp_path


def make(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    # A make that runs the tests would be taken for its parent.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", target], cwd=folder, env=alone, capture_output=True, text=True, check=False)


def test_a_first_install_that_was_interrupted_is_cleaned_away(folder: Path) -> None:
    for target in ("down", "clean"):
        done = make(folder, target)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Nothing to stop")
    assert [path.name for path in (folder / ".local").iterdir()] == ["venv"]


@pytest.mark.parametrize("file", ["postgres/postmaster.pid", "docker/dockerd.pid"])
def test_data_of_a_platform_that_may_run_stays_until_it_can_be_stopped(folder: Path, file: str) -> None:
    running = folder / ".local" / file
    running.parent.mkdir()
    running.touch()
    done = make(folder, "clean")
    assert done.returncode != 0
    assert done.stderr.startswith("error: the platform may run")
    assert "make venv" in done.stderr
    assert running.exists()
