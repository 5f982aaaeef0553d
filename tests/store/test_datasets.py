import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.store.datasets import read_records
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


def test_a_split_folder_by_every_kind_of_address(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    expected = {split: [{"id": split}] for split in ("train", "val", "test")}
    for uri in ("sample", "sample/", (folder / "sample").as_uri(), f"s3://{bucket}/data/sample"):
        assert read_records(uri, folder, "split_dir", s3_client) == expected


@pytest.mark.parametrize(
    ("uri", "mode", "message"),
    [
        ("none.json", "ratio", r"none\.json: No such file or directory; expected a file of records: check data\.uri"),
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
            r"expects a folder with train\|val\|test/items\.json; .* data\.split_mode to ratio",
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


def test_a_missing_object_is_named(folder: Path, bucket: str, s3_client: "S3Client") -> None:
    with pytest.raises(
        DataError, match=rf"nothing is stored as s3://{bucket}/none/train/items\.json .*check data\.uri"
    ):
        read_records(f"s3://{bucket}/none", folder, "split_dir", s3_client)


def test_a_store_that_does_not_answer_is_named(folder: Path, unreachable_client: "S3Client") -> None:
    with pytest.raises(DataError, match=r"s3://b/x\.json: the object store at .* did not answer"):
        read_records("s3://b/x.json", folder, "ratio", unreachable_client)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", '[\n{"id": "a"},\n{"id" "b"}]', r"x\.json: line 3, column 7: not JSON"),
        ("x.json", "", r"x\.json: line 1, column 1: not JSON"),
        ("x.json", '{"id": "a"}', r"x\.json: expected an array of records, got an object"),
        ("x.json", '[{"id": "a"}, "b"]', r"x\.json: record 2: expected an object .* got a text"),
        ("x.json", '[{"id": NaN}]', r"x\.json: not JSON \(NaN is no JSON number\)"),
        ("x.json", '[{"id": "\\ud800"}]', r"x\.json: record 1: holds half of a surrogate pair"),
        ("x.jsonl", '{"id": "a"}\n\n{"id": }\n', r"x\.jsonl: line 3: not JSON .* one record a line"),
        ("x.jsonl", '{"id": Infinity}', r"x\.jsonl: line 1: not JSON \(Infinity is no JSON number\)"),
        ("x.jsonl", "[1]", r"x\.jsonl: record 1: expected an object .* got an array"),
    ],
)
def test_a_file_that_holds_no_records_is_named(
    tmp_path: Path, unreachable_client: "S3Client", name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_records(name, tmp_path, "ratio", unreachable_client)


def test_other_encodings_are_named_and_a_mark_is_skipped(tmp_path: Path, unreachable_client: "S3Client") -> None:
    (tmp_path / "x.json").write_bytes(b'[{"id": "\xe9"}]')
    with pytest.raises(DataError, match=r"x\.json: is not UTF-8 text \(.* at byte 9\)"):
        read_records("x.json", tmp_path, "ratio", unreachable_client)
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf[{"id": "a"}]')
    assert read_records("x.json", tmp_path, "ratio", unreachable_client) == {"all": [{"id": "a"}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(records=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
def test_array_and_lines_read_alike(tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, object]]) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "same.json").write_text(json.dumps(records, ensure_ascii=False), newline="")
    (folder / "same.jsonl").write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in records), newline="")
    for name in ("same.json", "same.jsonl"):
        assert read_records(name, folder, "ratio", None) == {"all": records}  # type: ignore[arg-type]
