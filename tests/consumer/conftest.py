import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.consumer import SkillClient
from skillopt_airflow.store.artifacts import ArtifactStore, Published
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore
from tests.store.conftest import aws_variables, free_port, s3_client, s3_endpoint, store  # noqa: F401
from tests.store.test_artifacts import provenance

PROJECT = Path(__file__).parents[2]
CONSUMER = PROJECT / "include" / "skillopt_airflow" / "consumer.py"
BENCHMARK, TARGET, PREFIX = "search_qa", "openai-chat:org/model", "team/"
KEYS = ArtifactKeys(PREFIX, BENCHMARK, TARGET)

Publish = Callable[[str], Published]
Client = Callable[..., SkillClient]
Command = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def boto_variables(aws_variables: None) -> None:  # noqa: F811
    """Credentials come from boto3's own chain alone."""


@pytest.fixture
def publish(store: ObjectStore) -> Publish:  # noqa: F811
    artifacts = ArtifactStore(store, KEYS)
    return lambda text: artifacts.publish(text, provenance(), artifacts.champion.read())


@pytest.fixture
def client(store: ObjectStore, s3_endpoint: str, tmp_path: Path) -> Client:  # noqa: F811
    def make(**options: Any) -> SkillClient:
        defaults = {"prefix": PREFIX, "endpoint_url": s3_endpoint, "cache": tmp_path / "cache", "timeout": 60}
        return SkillClient(store.bucket, BENCHMARK, TARGET, **(defaults | options))

    return make


def cut_off(made: SkillClient) -> None:
    """From now on nothing listens where the client's bucket was."""
    made._endpoint, made._s3 = f"http://127.0.0.1:{free_port()}", None


@pytest.fixture
def command(store: ObjectStore, s3_endpoint: str, tmp_path: Path) -> Command:  # noqa: F811
    """The program's words that fetch the champion into the folder `skill`; a later option counts instead of these."""
    fixed = ["fetch", "--bucket", store.bucket, "--benchmark", BENCHMARK, "--target", TARGET, "--prefix", PREFIX]
    fixed += ["--endpoint-url", s3_endpoint, "--out", f"{tmp_path}/skill", "--cache", f"{tmp_path}/cache"]
    return lambda *more: [sys.executable, str(CONSUMER), *fixed, *more]


def run(words: list[str], cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False
    )
