"""MathVerse and BabyVision load as published: a file with a folder of pictures, or Parquet with the pictures in it."""

import json
from pathlib import Path
from shutil import copytree
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


def with_a_folder(name: str, folder: Path) -> Path:
    """The official file beside its pictures: an array, or an object a line."""
    copytree(sample(name) / "images", folder / "images")
    if name == "mathverse":
        file = folder / "testmini.json"
        file.write_text(json.dumps(records(name)), encoding="utf-8")
    else:
        file = folder / "meta_data.jsonl"
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records(name)), encoding="utf-8")
    return file


def with_the_pictures(name: str, folder: Path) -> Path:
    """The table of the Hugging Face hub."""
    rows = [
        record | {"image": {"bytes": (sample(name) / record["image"]).read_bytes(), "path": record["image"]}}
        for record in records(name)
    ]
    file = folder / "testmini.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=5)
    return file


@pytest.mark.parametrize("published", [with_a_folder, with_the_pictures])
@pytest.mark.parametrize("name", ["mathverse", "babyvision"])
def test_the_items_have_their_pictures(name: str, published: Any, tmp_path: Path) -> None:
    found = {item.id: (item, pictures) for item, pictures in loaded(name, str(published(name, tmp_path)))}
    benchmark = benchmarks.load(name)
    assert len(found) == COUNT
    for record in records(name):
        item, pictures = found[benchmark.identity(record)]
        assert [*pictures.values()] == [(sample(name) / record["image"]).read_bytes()]
        assert item.public == benchmark.item(record).public
        assert item.reference == benchmark.item(record).reference
