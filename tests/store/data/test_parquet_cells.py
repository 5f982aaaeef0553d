import io
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.store.data.datasets import read_records
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.store.data.record_files import Cell, Cells
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ROWS = 25


def table(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    # Several parts, as large data sets have them.
    pa.parquet.write_table(pa.table(columns), sink, row_group_size=10)
    return sink.getvalue()


def pictures() -> bytes:
    """A picture a row but in the last, and two more in a list."""
    one: list[Any] = [{"bytes": b"picture %d" % row, "path": f"{row}.png"} for row in range(ROWS - 1)]
    more = [
        [{"bytes": b"first %d" % row, "path": None}, {"bytes": b"second %d" % row, "path": None}] for row in range(ROWS)
    ]
    return table(question=[f"q{row}" for row in range(ROWS)], image=[*one, None], more=more)


@given(st.text(min_size=1), st.integers(0, 10**9 - 1), st.none() | st.integers(0, 99))
def test_a_reference_leads_back_to_its_cell(column: str, row: int, place: int | None) -> None:
    cell = Cell("train/items.parquet", column, row, place)
    assert Cell.of(str(cell)) == cell


@pytest.mark.parametrize("path", ["a.png", "items.parquet", "a#cell=x/1.png", "items.parquet#cell=image/7"])
def test_other_paths_are_those_of_files(path: str) -> None:
    assert Cell.of(path) is None


@pytest.mark.parametrize("place", ["local", "bucket"])
@pytest.mark.parametrize("split_mode", ["ratio", "split_dir"])
def test_records_refer_to_files_that_are_found(
    place: str, split_mode: Any, tmp_path: Path, store: ObjectStore, s3_client: "S3Client"
) -> None:
    names = (
        ["all.parquet"] if split_mode == "ratio" else [f"{split}/items.parquet" for split in ("train", "val", "test")]
    )
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(pictures())
        store.put_bytes(f"data/{name}", pictures())
    folder = "data" if place == "local" else f"s3://{store.bucket}/data"
    uri = f"{folder}/all.parquet" if split_mode == "ratio" else folder
    files = DataFiles(folder, tmp_path, s3_client)
    for records in read_records(uri, tmp_path, split_mode, s3_client).values():
        assert [record["question"] for record in records] == [f"q{row}" for row in range(ROWS)]
        assert "image" not in records[-1]
        for row, record in enumerate(records):
            assert row == ROWS - 1 or files.read(str(record["image"])) == b"picture %d" % row
            found = [files.read(str(reference)) for reference in record["more"]]  # type: ignore[union-attr]
            assert found == [b"first %d" % row, b"second %d" % row]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(table(image=[{"bytes": None, "path": "a.png"}], n=[1]))
    (tmp_path / "y.parquet").write_bytes(b"nothing")
    files = DataFiles(str(tmp_path), tmp_path, None)  # type: ignore[arg-type]
    for cell, message in {
        Cell("x.parquet", "image", 0): "only the file's name",
        Cell("x.parquet", "image", 1): "no such cell",
        Cell("x.parquet", "image", 0, 2): "no such cell",
        Cell("x.parquet", "n", 0): "no such cell",
        Cell("x.parquet", "gone", 0): "no such cell",
        Cell("y.parquet", "image", 0): "not a Parquet file",
        Cell("z.parquet", "image", 0): "z.parquet: .*No such file",
        Cell("../x.parquet", "image", 0): "expected a path below",
    }.items():
        with pytest.raises(DataError, match=message):
            files.read(str(cell))


def test_a_part_of_a_table_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, str]] = []
    original = Cells._read
    monkeypatch.setattr(Cells, "_read", lambda self, *part: read.append(part) or original(self, *part))
    cells = Cells(lambda: pa.parquet.ParquetFile(pa.BufferReader(pictures())))
    for row in range(ROWS - 1):
        assert cells.read(Cell("x.parquet", "image", row)) == b"picture %d" % row
    assert read == [(0, "image"), (1, "image"), (2, "image")]


def test_of_a_table_in_a_bucket_no_more_than_a_part_is_read_at_a_time(
    store: ObjectStore, s3_client: "S3Client", monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = Random(3)
    contents = [noise.randbytes(100_000) for _ in range(40)]
    sink = io.BytesIO()
    images = [{"bytes": content, "path": None} for content in contents]
    pa.parquet.write_table(pa.table({"id": list(range(40)), "image": images}), sink, row_group_size=5)
    store.put_bytes("set/scans.parquet", sink.getvalue())
    fetched: list[int] = []
    get = ObjectStore.get_range

    def counted(store: ObjectStore, key: str, start: int, stop: int) -> bytes:
        fetched.append(stop - start)
        return get(store, key, start, stop)

    monkeypatch.setattr(ObjectStore, "get_range", counted)
    monkeypatch.setattr(ObjectStore, "get_bytes", None)
    rows = read_records(f"s3://{store.bucket}/set/scans.parquet", Path(), "ratio", s3_client)["all"]
    assert sum(fetched) < 100_000
    files = DataFiles(f"s3://{store.bucket}/set", Path(), s3_client)
    assert [files.read(str(row["image"])) for row in rows] == contents
    assert max(fetched) <= 5 * 100_100
    assert sum(fetched) <= 41 * 100_100
