"""A real S3 server of the tests' own, over HTTP on a free port."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_SECONDS = 60


@pytest.fixture
def aws_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what finds its credentials in boto3's own way."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("s3")
    port = free_port()
    settings = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "S3_PERSIST": "1",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(folder / "state"),
        "S3_DATA_DIR": str(folder / "data"),
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "ministack"], env=os.environ | settings, cwd=folder, stdout=log, stderr=log
        )
        try:
            wait_for_port(server, port, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Iterator["S3Client"]:
    client = make_client(s3_endpoint)
    yield client
    client.close()


@pytest.fixture
def unreachable_client() -> Iterator["S3Client"]:
    client = make_client(f"http://127.0.0.1:{free_port()}")
    yield client
    client.close()


@pytest.fixture
def store(s3_client: "S3Client", request: pytest.FixtureRequest) -> ObjectStore:
    """An empty bucket for each test."""
    bucket = f"test-{abs(hash(request.node.nodeid))}"
    s3_client.create_bucket(Bucket=bucket)
    return ObjectStore(s3_client, bucket)


def make_client(endpoint: str, **options: Any) -> "S3Client":
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, max_pool_connections=20, **options)
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        config=config,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the S3 server did not start:\n{log.read_text()}")
