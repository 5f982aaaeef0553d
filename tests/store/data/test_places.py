from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.store.data.places import Place, locate
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import to_parquet

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


TABLE = to_parquet(pa.table({"id": ["a"]}))
FILES = {"a/x.json": b"[1]", "a/y.json": b"[2]", "a/b/x.json": b"[3]", "t.parquet": TABLE}


@pytest.fixture(params=["local", "file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, store: ObjectStore, s3_client: "S3Client") -> Place:
    """The same files on this machine and in a bucket."""
    for name, content in FILES.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_bytes(content)
        store.put_bytes(f"set/{name}", content)
    uris = {"local": "set", "file": (tmp_path / "set").as_uri(), "s3": f"s3://{store.bucket}/set"}
    return locate(uris[request.param], tmp_path, s3_client)


def test_files_are_read_alike_wherever_they_are(place: Place) -> None:
    for name, content in FILES.items():
        assert place.below(name).read("hint") == content
        assert place.below(name).address == f"{place.address}/{name}"
    assert place.below("t.parquet").table("hint").read().to_pylist() == [{"id": "a"}]


def test_paths_are_all_that_match_a_pattern_and_maybe_others(place: Place) -> None:
    assert {"a/x.json", "a/y.json"} <= set(place.paths("a/*.json", "hint"))
    assert "x.json" in place.below("a").paths("x.*", "hint")
    assert place.below("a").paths("none*", "hint") == place.below("none").paths("*", "hint") == []


def test_what_is_missing_is_named_with_the_hint(place: Place) -> None:
    for read in (place.below("none.json").read, place.below("none.parquet").table):
        with pytest.raises(DataError, match=r"set/none\.\w+.*\. check the name$") as error:
            read("check the name")
        assert isinstance(error.value.__cause__, ObjectMissing | FileNotFoundError)


def test_a_url_of_another_kind_names_its_knob(tmp_path: Path, s3_client: "S3Client") -> None:
    with pytest.raises(DataError, match=r"^data\.corpus = ftp://host/x: "):
        locate("ftp://host/x", tmp_path, s3_client, "data.corpus")
