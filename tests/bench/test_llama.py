"""A model's server in a separate environment; a script takes the place of llama.cpp."""

import subprocess
from pathlib import Path

import psutil
import pytest

from bench import llama
from skillopt_airflow.core.errors import PlatformError


def python_that(folder: Path, *commands: str) -> Path:
    script = folder / "python"
    script.write_text("\n".join(["#!/bin/sh", *commands]) + "\n")
    script.chmod(0o755)
    return script


def test_a_server_ends_with_the_block(tmp_path: Path) -> None:
    python = python_that(
        tmp_path, f"echo $$ > {tmp_path}/pid", "echo loading", "echo http://127.0.0.1:7", "exec sleep 60"
    )
    with llama.serve(python, tmp_path / "model.gguf", tmp_path / "log") as address:
        assert address == "http://127.0.0.1:7/v1"
        pid = int((tmp_path / "pid").read_text())
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_a_file_that_is_no_model_is_named_with_the_servers_log(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo invalid magic >&2", "exit 1")
    with (
        pytest.raises(PlatformError, match=r"model\.gguf(?s:.*)invalid magic"),
        llama.serve(python, tmp_path / "model.gguf", tmp_path / "log"),
    ):
        pytest.fail("a server that has ended was taken for one that runs")


def test_an_environment_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "LOCK", tmp_path / "no-lock.txt")
    with pytest.raises(PlatformError, match=r"no-lock\.txt"):
        llama.install(tmp_path / "environment")
    assert subprocess.run([tmp_path / "environment" / "bin" / "python", "-c", ""], check=False).returncode == 0
