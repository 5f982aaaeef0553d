"""The S3 server and its buckets."""

import sys
from threading import Event
from typing import TYPE_CHECKING

import boto3
import httpx
from botocore.config import Config

from local import services
from local.environment import LOG_BUCKET, REGION, UNCHECKED_KEY, s3_url
from local.home import Home, Settings
from skillopt_airflow.core.resource_groups import StorageGroup

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NAME = "s3"
START_SECONDS = 60.0


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Have the server run, with the buckets in it.

    Raises:
        PlatformError: it does not start; the text has the last lines of its log.
    """
    own = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(settings.ports.s3),
        "SERVICES": "s3",
        # Both listen on all addresses, whatever BIND_HOST says.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "S3_PERSIST": "1",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(home.s3 / "state"),
        "S3_DATA_DIR": str(home.s3 / "data"),
        "TMPDIR": str(home.s3),
        "LOG_LEVEL": "WARNING",
    }
    service = services.Service(NAME, (sys.executable, "-m", "ministack"), variables | own)
    services.ensure(home, service, lambda: is_ready(settings), cancelled, START_SECONDS)
    s3 = client(settings)
    present = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    storage = StorageGroup()
    for bucket in {storage.bucket, storage.artifact_bucket, LOG_BUCKET} - present:
        s3.create_bucket(Bucket=bucket)


def is_ready(settings: Settings) -> bool:
    """Return whether the server answers."""
    try:
        return httpx.get(f"{s3_url(settings)}/_ministack/health", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False


def client(settings: Settings) -> "S3Client":
    """Return a client of the platform's S3 server."""
    return boto3.client(
        "s3",
        endpoint_url=s3_url(settings),
        region_name=REGION,
        aws_access_key_id=UNCHECKED_KEY,
        aws_secret_access_key=UNCHECKED_KEY,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, proxies={}),
    )
