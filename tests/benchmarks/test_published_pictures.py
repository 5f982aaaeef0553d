"""MathVerse and BabyVision load as published, as Parquet with the pictures in it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from skillopt_airflow import benchmarks
from tests.benchmarks.published_pictures import loaded

COUNT = 12


def sample(name: str) -> Path:
    return benchmarks.folder(name) / "sample"


def records(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((sample(name) / "train" / "items.json").read_text(encoding="utf-8"))
    return found[:COUNT]


@pytest.mark.parametrize("name", ["mathverse", "babyvision"])
def test_the_table_of_the_hub_loads_with_its_pictures(name: str, tmp_path: Path) -> None:
    """The samples show that a file beside a folder of pictures does."""
    rows = [
        record | {"image": {"bytes": (sample(name) / record["image"]).read_bytes(), "path": record["image"]}}
        for record in records(name)
    ]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "testmini.parquet", row_group_size=5)
    found = {item.id: (item, pictures) for item, pictures in loaded(name, f"{tmp_path}/testmini.parquet")}
    benchmark = benchmarks.load(name)
    assert len(found) == COUNT
    for record in records(name):
        item, pictures = found[benchmark.identity(record)]
        assert [*pictures.values()] == [(sample(name) / record["image"]).read_bytes()]
        assert item.public == benchmark.item(record).public
        assert item.reference == benchmark.item(record).reference
