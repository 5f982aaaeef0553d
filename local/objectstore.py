"""The S3 server and its buckets."""

import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from local import services
from local.environment import LOG_BUCKET, REGION, UNCHECKED_KEY, s3_url
from local.home import Home, Settings
from skillopt_airflow.core.config.resource_groups import StorageGroup

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NAME = "s3"
COMMAND = (sys.executable, "-m", "ministack")
START_SECONDS = 60.0


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Start the server and create the buckets."""
    variables = variables | own_variables("127.0.0.1", settings.ports.s3, home.s3)
    service = services.Service(NAME, COMMAND, variables, (services.LOCK,))
    services.ensure(home, service, lambda: is_ready(s3_url(settings)), cancelled, START_SECONDS)
    s3 = client(s3_url(settings))
    present = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    storage = StorageGroup()
    for bucket in {storage.bucket, storage.artifact_bucket, LOG_BUCKET} - present:
        s3.create_bucket(Bucket=bucket)


def own_variables(host: str, port: int, folder: Path) -> dict[str, str]:
    """Return the environment of a server with its objects in `folder`."""
    return {
        "BIND_HOST": host,
        "GATEWAY_PORT": str(port),
        "SERVICES": "s3",
        # Both ignore BIND_HOST and listen on all addresses.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "S3_PERSIST": "1",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(folder / "state"),
        "S3_DATA_DIR": str(folder / "data"),
        "TMPDIR": str(folder),
        "LOG_LEVEL": "WARNING",
    }


def is_ready(address: str) -> bool:
    return services.serves(f"{address}/_ministack/health")


def client(address: str) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=address,
        region_name=REGION,
        aws_access_key_id=UNCHECKED_KEY,
        aws_secret_access_key=UNCHECKED_KEY,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, proxies={}),
    )
