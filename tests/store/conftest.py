"""A real S3 server of the tests' own, over HTTP on a free port."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from bench.s3_server import server_in
from local.home import free_ports
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def aws_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what finds its credentials in boto3's own way."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in(tmp_path_factory.mktemp("s3")) as address:
        yield address


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


def make_client(endpoint: str, verify: str | None = None, **options: Any) -> "S3Client":
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, max_pool_connections=20, **options)
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        config=config,
        verify=verify,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def free_port() -> int:
    return free_ports(1)[0]
