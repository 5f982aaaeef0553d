import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from PIL import Image

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.types import ItemFile
from skillopt_airflow.store.data import files
from skillopt_airflow.store.data.files import DataFiles, FileStore
from skillopt_airflow.store.data.places import Place, locate
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import to_parquet

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BOOK = b"PK book"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "books" / "a b").mkdir(parents=True)
    (tmp_path / "data" / "books" / "a b" / "1_x_init.xlsx").write_bytes(BOOK)
    (tmp_path / "data" / "books" / "a b" / "1_x_golden.xlsx").write_bytes(b"golden")
    (tmp_path / "data" / "top.xlsx").write_bytes(b"top")
    (tmp_path / "secret.xlsx").write_bytes(b"not of the data set")
    return tmp_path


@pytest.fixture
def bucket(store: ObjectStore, folder: Path) -> str:
    for path in folder.rglob("*.xlsx"):
        store.put_bytes(str(path.relative_to(folder)), path.read_bytes())
    return store.bucket


@pytest.fixture(params=["relative", "absolute", "file", "s3"])
def data_files(request: pytest.FixtureRequest, folder: Path, bucket: str, s3_client: "S3Client") -> DataFiles:
    uri = {
        "relative": "data",
        "absolute": str(folder / "data"),
        "file": (folder / "data").as_uri(),
        "s3": f"s3://{bucket}/data",
    }[request.param]
    return DataFiles(uri, folder, s3_client)


@pytest.mark.nightly
def test_a_file_by_its_path_or_by_a_pattern_that_only_it_fits(data_files: DataFiles) -> None:
    assert data_files.read("books/a b/1_x_init.xlsx") == BOOK
    assert data_files.read("books/a b/*init*.xlsx") == BOOK
    assert data_files.read("books/a b/*golden.xlsx") == b"golden"
    assert data_files.read("top.xlsx") == data_files.read("t*.xlsx") == b"top"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("books/none.xlsx", r"none\.xlsx"),
        ("books/a b/*.xlsx", r"books/a b: .* \*\.xlsx, found 1_x_golden\.xlsx, 1_x_init\.xlsx"),
        ("nowhere/*.xlsx", r"\*\.xlsx, found none"),
        ("../secret.xlsx", "a path below .*data"),
        ("books/../../secret.xlsx", "a path below"),
        ("/secret.xlsx", "a path below"),
        ("*/1_x_init.xlsx", "only in its last part"),
    ],
)
def test_what_is_not_there_or_not_below_the_folder_is_named(data_files: DataFiles, path: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        data_files.read(path)


def test_a_file_above_the_limit_is_refused(data_files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", len(BOOK) - 1)
    with pytest.raises(DataError, match=r"1_x_init\.xlsx: .* 6 bytes"):
        data_files.read("books/a b/1_x_init.xlsx")
    assert data_files.read("top.xlsx") == b"top"


@pytest.mark.parametrize(("uri", "mode"), [("data", "split_dir"), ("data/all.jsonl", "ratio")])
def test_the_folder_is_that_of_the_splits_or_of_the_one_file(folder: Path, uri: str, mode: str) -> None:
    data = DataGroup.model_validate({"uri": uri, "split_mode": mode})
    assert DataFiles.of(data, folder, None).read("top.xlsx") == b"top"  # type: ignore[arg-type]


def test_a_picture_that_many_items_have_is_made_once(folder: Path) -> None:
    page = folder / "data" / "page.tif"
    Image.new("RGB", (4, 4)).save(page)
    data = DataFiles("data", folder, None)  # type: ignore[arg-type]
    file = ItemFile(name="page.png", path="page.tif", picture=True)
    first = data.contents([file])
    page.unlink()
    assert data.contents([file]) == first
    with pytest.raises(DataError, match=r"page\.tif"):
        data.contents([file.model_copy(update={"name": "page.jpg"})])


def test_equal_files_are_stored_once_below_the_prefix(store: ObjectStore) -> None:
    kept = FileStore(store, "some/prefix/")
    digest = kept.put(BOOK)
    assert digest == kept.put(BOOK) == hashlib.sha256(BOOK).hexdigest()
    assert store.list_keys("") == [f"some/prefix/files/{digest}"]
    assert kept.get(digest) == BOOK
    with pytest.raises(ObjectMissing, match="files/0000"):
        kept.get("0000")


@pytest.mark.parametrize("path", ["notes/1.txt", "up/passwd", "self/a.txt", "pipe", "t.parquet#cell=x/000000000"])
def test_no_link_is_followed_and_no_pipe_waited_for(path: str, tmp_path: Path, s3_client: "S3Client") -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "a.txt").write_text("inside")
    (tmp_path / "notes" / "1.txt").symlink_to("/proc/self/environ")
    (tmp_path / "up").symlink_to("/etc")
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "t.parquet").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"is a link to|is not a plain file"):
        DataFiles(str(tmp_path), tmp_path, s3_client).read(path)
    (tmp_path / "home").symlink_to(tmp_path)
    assert DataFiles("home", tmp_path, s3_client).read("a.txt") == b"inside"


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
        with pytest.raises(DataError, match=r"set/none\.\w+.*.*check the name") as error:
            read("check the name")
        assert isinstance(error.value.__cause__, ObjectMissing | FileNotFoundError)


def test_a_url_of_another_kind_names_its_knob(tmp_path: Path, s3_client: "S3Client") -> None:
    with pytest.raises(DataError, match=r"^data\.corpus = ftp://host/x: "):
        locate("ftp://host/x", tmp_path, s3_client, "data.corpus")
