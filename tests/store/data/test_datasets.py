import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.config.service_groups import RegateGroup
from skillopt_airflow.core.errors import DataError, StoreUnavailable
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.data.data_manifest import ListedItems, SplitList
from skillopt_airflow.store.data.datasets import SplitMode, partition_uri, read_partition, read_records, read_split_list
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.record_fields import UnreadableRecord

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
    for uri, ids in {
        "sample/*/items.json": ["test", "train", "val"],
        f"{folder.as_uri()}/sample/t*/it*.json": ["test", "train"],
        f"s3://{bucket}/data/sample/t*/*.json": ["test", "train"],
    }.items():
        found = read_records(uri, folder, "ratio", s3_client)["all"]
        assert [record["id"] for record in found] == [record["folder"] for record in found] == ids
    for uri in ("one*.json", f"s3://{bucket}/data/l*.jsonl"):
        assert read_records(uri, folder, "ratio", s3_client) == {"all": RECORDS}
    # It enters folders that are links, a record keeps a folder of its own, and a star in a name is read once.
    (folder / "linked").mkdir()
    (folder / "linked" / "a").symlink_to(folder / "sample" / "val")
    (folder / "linked" / "b").mkdir()
    (folder / "linked" / "b" / "items*.json").write_text('[{"id": "1", "folder": "mine"}, 5]')
    first, second, third = read_records("linked/*/items*.json", folder, "ratio", s3_client)["all"]
    assert (first, second) == ({"id": "val", "folder": "a"}, {"id": "1", "folder": "mine"})
    assert isinstance(third, UnreadableRecord)


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
    (folder / "sample" / "publish").mkdir()
    (folder / "sample" / "publish" / "items.jsonl").write_text('{"id": "publish"}')
    assert read_records("sample", folder, "split_dir", s3_client) == expected | {"publish": [{"id": "publish"}]}
    (folder / "sample/val/items.csv").write_text("id\nval\n")
    with pytest.raises(DataError, match=r"sample/val/items\.csv and sample/val/items\.json"):
        read_records("sample", folder, "split_dir", s3_client)


@pytest.mark.parametrize(
    ("uri", "mode", "message"),
    [
        ("none.json", "ratio", r"none\.json: No such file"),
        ("sample/*/none*.json", "ratio", r"data\.uri = sample/\*/none\*\.json"),
        ("nowhere/*.json", "ratio", r"data\.uri = nowhere/\*\.json"),
        ("no/such/x.json", "ratio", "the folder .*/no does not exist"),
        ("absent", "split_dir", r"absent/train/items\.json: the folder .*/absent does not exist"),
        ("sample", "ratio", r"data\.uri = sample: .* set data\.split_mode to split_dir"),
        ("lines.jsonl", "split_dir", r"data\.split_mode to ratio"),
        ("http://host/x.json", "ratio", "http://host"),
        ("file://host/x.json", "ratio", "file://host"),
        ("s3:///x.json", "ratio", "s3:///x"),
        ("s3://no-such-bucket/x.json", "ratio", "bucket no-such-bucket does not exist"),
        ("s3://{bucket}/none", "split_dir", r"s3://{bucket}/none/train/items\.json .*data\.uri"),
    ],
)
def test_what_is_not_there_is_named(
    folder: Path, bucket: str, s3_client: "S3Client", uri: str, mode: SplitMode, message: str
) -> None:
    with pytest.raises(DataError, match=message.replace("{bucket}", bucket)):
        read_records(uri.replace("{bucket}", bucket), folder, mode, s3_client)


def test_a_manifest_splits_a_file_or_a_folder(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    assert read_records("lines.jsonl", folder, "manifest", s3_client) == {"all": RECORDS}
    assert set(read_records("sample", folder, "manifest", s3_client)) == {"train", "val", "test"}
    (folder / "m.json").write_text('{"splits": {"train": {"ids": ["a"]}}}')
    expected = SplitList(splits={Split.TRAIN: ListedItems(ids=("a",))})
    for uri in ("m.json", (folder / "m.json").as_uri()):
        assert read_split_list(uri, folder, s3_client) == expected
    (folder / "ids.json").write_text(json.dumps({"splits": {"train": {"ids": [[]] * 5}}}))
    (folder / "text.json").write_text("train: a")
    for uri, reason in {
        "one file.json": "",
        "ids.json": r".*splits\.train\.ids\.2: .* and 2 more\.",
        "text.json": ".*Invalid JSON",
        f"s3://{bucket}/none": "",
    }.items():
        with pytest.raises(DataError, match=rf"^data\.split_manifest = {uri}: {reason}"):
            read_split_list(uri, folder, s3_client)


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
        with pytest.raises(DataError, match=rf"^data\.split_manifest = {uri}: \w+"):
            read_split_list(uri, tmp_path, s3_client)


@pytest.mark.parametrize(
    ("uri", "mode"), [("s3://b/x.json", "ratio"), ("s3://b/*/x.json", "ratio"), ("s3://b/x", "split_dir")]
)
def test_a_store_that_does_not_answer_is_no_fault_of_the_data(
    folder: Path, unreachable_client: "S3Client", uri: str, mode: SplitMode
) -> None:
    with pytest.raises(StoreUnavailable, match="s3://b/"):
        read_records(uri, folder, mode, unreachable_client)


def test_a_split_folder_has_each_split_in_its_own_format(
    store: ObjectStore, s3_client: "S3Client", tmp_path: Path
) -> None:
    contents = {"train/items.CSV": b"id\na\n", "val/items.jsonl": b'{"id": "b"}', "test/items.json": b'[{"id": "c"}]'}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(content)
        store.put_bytes(f"formats/{name}", content)
    for uri in (str(tmp_path), f"s3://{store.bucket}/formats"):
        read = read_records(uri, tmp_path, "split_dir", s3_client)
        assert read == {"train": [{"id": "a"}], "val": [{"id": "b"}], "test": [{"id": "c"}]}


def test_a_nights_items_come_late_and_in_any_format(tmp_path: Path, unreachable_client: "S3Client") -> None:
    folder = partition_uri(DataGroup(uri="all.csv"), RegateGroup(), "2026-11-01")
    assert folder == "fresh/date=2026-11-01"
    assert read_partition(folder, tmp_path, unreachable_client) is None
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "items.csv").write_text("id,question\n")
    assert read_partition(folder, tmp_path, unreachable_client) is None
    (tmp_path / folder / "items.csv").write_text("id,question\n1,why\n")
    assert read_partition(folder, tmp_path, unreachable_client) == [{"id": "1", "question": "why"}]
