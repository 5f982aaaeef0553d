"""The fresh items of a night: one partition a date."""

from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.config import DataGroup, RegateGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.store.datasets import read_file

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def partition_uri(data: DataGroup, regate: RegateGroup, date: str) -> str:
    """Where the items of a date (YYYY-MM-DD) are."""
    folder = regate.fresh_uri
    if folder is None:
        beside = data.uri if data.split_mode == "split_dir" else data.uri.rpartition("/")[0]
        folder = f"{beside.rstrip('/')}/fresh" if beside else "fresh"
    return f"{folder.rstrip('/')}/date={date}/items.json"


def read_partition(uri: str, root: Path, client: "S3Client") -> list[JsonObject] | None:
    """The records of a partition; None if it is not there or empty, which is no error: they may come late.

    Args:
        uri: a local path, relative ones from `root`, a file:// or an s3:// address.
        root: the benchmark's folder.
        client: reads s3:// addresses.

    Raises:
        DataError: the file does not hold records.
    """
    try:
        records = read_file(uri, root, client)
    except DataError as error:
        if isinstance(error.__cause__, (ObjectMissing, FileNotFoundError)):
            return None
        raise
    return records if records else None
