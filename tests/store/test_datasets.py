import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skillopt_airflow.core.errors import DataError, StoreUnavailable
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.core.resource_groups import DataGroup
from skillopt_airflow.core.service_groups import RegateGroup
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.data_manifest import ListedItems, SplitList
from skillopt_airflow.store.datasets import SplitMode, partition_uri, read_partition, read_records, read_split_list
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RECORDS = [{"id": "a", "question": "é\u2028?", "answers": ["x"]}, {"id": "b"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "val", "test"):
        (tmp_path / "sample" / split).mkdir(parents=True)
        (tmp_path / "sample" / split / "items.json").write_text(json.dumps([{"id": split}]))
    (tmp_path / "one file.json").write_text(json.dumps(RECORDS, ensure_ascii=False))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\r\n\n" for r in RECORDS))
    return tmp_path


@pytest.fixture
def bucket(store: ObjectStore, folder: Path) -> str:
    for path in folder.rglob("*.json*"):
        store.put_bytes(f"data/{path.relative_to(folder)}", path.read_bytes())
    return store.bucket


def test_a_file_of_records_by_every_kind_of_address(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    for uri in (
        "one file.json",
        "lines.jsonl",
        str(folder / "one file.json"),
        (folder / "one file.json").as_uri(),
        f"s3://{bucket}/data/one file.json",
        f"s3://{bucket}/data/lines.jsonl",
    ):
        assert read_records(uri, folder, "ratio", s3_client) == {"all": RECORDS}


def test_a_pattern_stands_for_all_files_that_match(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    for uri in ("sample/*/items.json", f"{folder.as_uri()}/sample/t*/it*.json", f"s3://{bucket}/data/sample/t*/*.json"):
        found = read_records(uri, folder, "ratio", s3_client)["all"]
        first = "sample" if "val" in str(found) else None
        assert [record["id"] for record in found] == (["test", "train", "val"] if first else ["test", "train"])
        assert [record["folder"] for record in found] == [record["id"] for record in found]
    assert read_records("one*.json", folder, "ratio", s3_client) == {"all": RECORDS}
    assert read_records(f"s3://{bucket}/data/l*.jsonl", folder, "ratio", s3_client) == {"all": RECORDS}


def test_a_pattern_enters_folders_that_are_links(tmp_path: Path, unreachable_client: "S3Client") -> None:
    for name in ("elsewhere/a", "data/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "items.json").write_text(json.dumps([{"id": name[-1]}]))
    (tmp_path / "data" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    found = read_records(f"{tmp_path}/data/*/items.json", tmp_path, "ratio", unreachable_client)["all"]
    assert [record["id"] for record in found] == ["a", "b"]


def test_a_record_keeps_a_folder_of_its_own_and_a_star_in_a_name_is_read_once(
    tmp_path: Path, s3_client: "S3Client"
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x*.json").write_text('[{"id": "1", "folder": "mine"}, 5]')
    found = read_records("*/x*.json", tmp_path, "ratio", s3_client)["all"]
    assert found[0] == {"id": "1", "folder": "mine"}
    assert len(found) == 2


def test_a_folder_whose_name_is_not_utf8_costs_no_record(tmp_path: Path, unreachable_client: "S3Client") -> None:
    for name in (b"a\xff", b"b"):
        folder = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(folder)  # noqa: PTH102 - a name in bytes
        with open(folder + b"/items.json", "wb") as file:  # noqa: PTH123 - a name in bytes
            file.write(b'[{"id": "1"}, 5]')
    found = read_records(f"{tmp_path}/*/items.json", tmp_path, "ratio", unreachable_client)["all"]
    assert [record.get("folder") for record in found] == ["a\ufffd", None, "b", None]
    assert [record.reason.encode() for record in found if isinstance(record, UnreadableRecord)]


def test_a_split_folder_by_every_kind_of_address(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    expected = {split: [{"id": split}] for split in ("train", "val", "test")}
    for uri in ("sample", "sample/", (folder / "sample").as_uri(), f"s3://{bucket}/data/sample"):
        assert read_records(uri, folder, "split_dir", s3_client) == expected


def test_a_split_folder_may_have_one_for_publishing(folder: Path, s3_client: "S3Client") -> None:
    (folder / "sample" / "publish").mkdir()
    (folder / "sample" / "publish" / "items.jsonl").write_text('{"id": "publish"}')
    found = read_records("sample", folder, "split_dir", s3_client)
    assert found == {split: [{"id": split}] for split in ("train", "val", "test", "publish")}


@pytest.mark.parametrize(
    ("uri", "mode", "message"),
    [
        ("none.json", "ratio", r"none\.json: No such file or directory; expected a file of records: check data\.uri"),
        ("sample/*/none*.json", "ratio", r"data\.uri = sample/\*/none\*\.json: no file matches"),
        ("nowhere/*.json", "ratio", r"data\.uri = nowhere/\*\.json: no file matches"),
        ("no/such/x.json", "ratio", r"the folder .*/no does not exist; expected a file of records"),
        ("absent", "split_dir", r"absent/train/items\.json: the folder .*/absent does not exist"),
        (
            "sample",
            "ratio",
            r"data\.uri = sample: split_mode ratio expects one file .* set data\.split_mode to split_dir",
        ),
        (
            "lines.jsonl",
            "split_dir",
            r"expects a folder with train\|val\|test/items\.json .*; .* data\.split_mode to ratio",
        ),
        ("http://host/x.json", "ratio", r"expected a local path, file:///path or s3://bucket/key"),
        ("file://host/x.json", "ratio", r"expected a local path, file:///path or s3://bucket/key"),
        ("s3:///x.json", "ratio", r"expected a local path, file:///path or s3://bucket/key"),
        ("s3://no-such-bucket/x.json", "ratio", r"s3://no-such-bucket/x\.json: bucket no-such-bucket does not exist"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, s3_client: "S3Client", uri: str, mode: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_records(uri, folder, mode, s3_client)  # type: ignore[arg-type]


def test_a_manifest_splits_a_file_or_a_folder(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    assert read_records("lines.jsonl", folder, "manifest", s3_client) == {"all": RECORDS}
    assert set(read_records("sample", folder, "manifest", s3_client)) == {"train", "val", "test"}
    (folder / "m.json").write_text('{"splits": {"train": {"ids": ["a"]}}}')
    expected = SplitList(splits={Split.TRAIN: ListedItems(ids=("a",))})
    for uri in ("m.json", (folder / "m.json").as_uri()):
        assert read_split_list(uri, folder, s3_client) == expected
    with pytest.raises(DataError, match=r"^data\.split_manifest = one file\.json: .* is no manifest, such as"):
        read_split_list("one file.json", folder, s3_client)
    (folder / "bad.json").write_text(json.dumps({"splits": {"train": {"ids": [[]] * 5}}}))
    with pytest.raises(DataError, match=r"splits\.train\.ids\.2: Input should be a valid string; and 2 more$"):
        read_split_list("bad.json", folder, s3_client)
    (folder / "bad.json").write_text("train: a")
    with pytest.raises(DataError, match=r"\.\.\.\}\}: Invalid JSON"):
        read_split_list("bad.json", folder, s3_client)
    with pytest.raises(DataError, match=rf"^data\.split_manifest = s3://{bucket}/none: nothing is stored as"):
        read_split_list(f"s3://{bucket}/none", folder, s3_client)


@pytest.mark.parametrize("form", ["objects", "texts"])
def test_a_folder_of_lists_of_ids_is_a_manifest(
    form: str, tmp_path: Path, store: ObjectStore, s3_client: "S3Client"
) -> None:
    """As SkillOpt publishes them: split_manifest.json says where the data came from, and lists nothing."""
    for split, ids in {"train": ["202602:22", "b"], "val": ["c"], "test": ["7"]}.items():
        entries = ids if form == "texts" else [{"id": name, "no": 1} for name in ids]
        content = json.dumps(entries).encode()
        (tmp_path / "x_id_split" / split).mkdir(parents=True)
        (tmp_path / "x_id_split" / split / "items.json").write_bytes(content)
        store.put_bytes(f"x_id_split/{split}/items.json", content)
    (tmp_path / "x_id_split" / "split_manifest.json").write_text('{"counts": {"train": 2}}')
    expected = SplitList(
        splits={
            Split.TRAIN: ListedItems(ids=("202602:22", "b")),
            Split.VAL: ListedItems(ids=("c",)),
            Split.TEST: ListedItems(ids=("7",)),
        }
    )
    for uri in ("x_id_split", "x_id_split/", str(tmp_path / "x_id_split"), f"s3://{store.bucket}/x_id_split"):
        assert read_split_list(uri, tmp_path, s3_client) == expected
    (tmp_path / "x_id_split" / "val" / "items.json").write_text('[{"name": "c"}]')
    for uri in ("x_id_split", "x_id_split/split_manifest.json"):
        with pytest.raises(
            DataError, match=rf"^data\.split_manifest = {uri}: it is no manifest, .* no folder with lists"
        ):
            read_split_list(uri, tmp_path, s3_client)


def test_a_missing_object_is_named(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    with pytest.raises(
        DataError, match=rf"nothing is stored as s3://{bucket}/none/train/items\.json .*check data\.uri"
    ):
        read_records(f"s3://{bucket}/none", folder, "split_dir", s3_client)


@pytest.mark.parametrize(
    ("uri", "mode"), [("s3://b/x.json", "ratio"), ("s3://b/*/x.json", "ratio"), ("s3://b/x", "split_dir")]
)
def test_a_store_that_does_not_answer_is_no_fault_of_the_data(
    folder: Path, unreachable_client: "S3Client", uri: str, mode: SplitMode
) -> None:
    with pytest.raises(StoreUnavailable, match=r"the object store at .* did not answer for s3://b/"):
        read_records(uri, folder, mode, unreachable_client)


def test_a_split_folder_has_each_split_in_its_own_format(
    store: ObjectStore, s3_client: "S3Client", tmp_path: Path
) -> None:
    contents = {
        "train/items.CSV": b"id\na\n",
        "val/items.jsonl": b'{"id": "b"}',
        "test/items.json": b'[{"id": "c"}]',
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
        store.put_bytes(f"formats/{name}", content)
    for uri in (str(tmp_path), f"s3://{store.bucket}/formats"):
        read = read_records(uri, tmp_path, "split_dir", s3_client)
        assert read == {"train": [{"id": "a"}], "val": [{"id": "b"}], "test": [{"id": "c"}]}


def test_two_files_of_one_split_are_named(folder: Path, unreachable_client: "S3Client") -> None:
    (folder / "sample/val/items.csv").write_text("id\nval\n")
    with pytest.raises(DataError, match=r"found sample/val/items\.csv and sample/val/items\.json; remove what is old"):
        read_records("sample", folder, "split_dir", unreachable_client)


def test_a_nights_items_come_late_and_in_any_format(tmp_path: Path, unreachable_client: "S3Client") -> None:
    folder = partition_uri(DataGroup(uri="all.csv"), RegateGroup(), "2026-11-01")
    assert folder == "fresh/date=2026-11-01"
    assert read_partition(folder, tmp_path, unreachable_client) is None
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "items.csv").write_text("id,question\n")
    assert read_partition(folder, tmp_path, unreachable_client) is None
    (tmp_path / folder / "items.csv").write_text("id,question\n1,why\n")
    assert read_partition(folder, tmp_path, unreachable_client) == [{"id": "1", "question": "why"}]
