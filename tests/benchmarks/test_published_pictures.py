"""MathVerse and BabyVision load as published: a file with a folder of pictures, or Parquet with the pictures in it."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from bench.real_data import ABSENT, REAL_DATA
from skillopt_airflow import benchmarks
from skillopt_airflow.core.types import DATA_SPLITS, Item, Split
from skillopt_airflow.training.history import history_of
from tests.training.in_process import Training

TEXTS = REAL_DATA / "mathverse" / "text_only.json"


def sample(name: str) -> Path:
    return benchmarks.folder(name) / "sample"


def records(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((sample(name) / "train" / "items.json").read_text(encoding="utf-8"))
    return found


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
    pa.parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=16)
    return file


def prepared(name: str, file: Path) -> list[Sequence[Item]]:
    """The items of the splits of a run on the file."""
    whole = {"evaluation__val_limit": None, "evaluation__test_limit": None, "data__split_ratio": "1:1:1"}
    training = Training.of(name, data__uri=str(file), data__split_mode="ratio", **whole)
    training.prepare()
    return [training.run.items(split) for split in DATA_SPLITS]


@pytest.mark.parametrize("published", [with_a_folder, with_the_pictures])
@pytest.mark.parametrize("name", ["mathverse", "babyvision"])
def test_the_items_have_their_pictures(name: str, published: Any, tmp_path: Path) -> None:
    found = {item.id: item for items in prepared(name, published(name, tmp_path)) for item in items}
    assert len(found) == len(records(name))
    benchmark = benchmarks.load(name)
    for record in records(name):
        item = found[benchmark.identity(record)]
        (picture,) = item.files
        assert picture.sha256 == hashlib.sha256((sample(name) / record["image"]).read_bytes()).hexdigest()
        assert item.public == benchmark.item(record).public
        assert item.reference == benchmark.item(record).reference
        assert len(item.task_types) == 1


def test_versions_of_a_problem_are_in_one_split(tmp_path: Path) -> None:
    versions = [
        record | {"problem_version": version}
        for record in records("mathverse")[:24]
        for version in ("Text Lite", "Vision Only")
    ]
    copytree(sample("mathverse") / "images", tmp_path / "images")
    file = tmp_path / "testmini.json"
    file.write_text(json.dumps(versions), encoding="utf-8")
    groups = [{item.group for item in items} for items in prepared("mathverse", file)]
    assert sum(map(len, groups)) == 24


@pytest.mark.slow
@pytest.mark.skipif(not TEXTS.is_file(), reason=ABSENT)
def test_the_problems_without_pictures_train_and_are_measured() -> None:
    training = Training.of(
        "mathverse",
        data__uri=str(TEXTS),
        data__split_mode="ratio",
        data__task_type="metadata.subject",
        train__num_epochs=1,
        evaluation__val_limit=None,
        evaluation__test_limit=None,
    )
    training()
    assert [len(training.run.items(split)) for split in (Split.TRAIN, Split.VAL, Split.TEST)] == [80, 40, 280]
    assert history_of(training.run).seed_val_score > 0
    subjects = {kind for item in training.run.items(Split.TEST) for kind in item.task_types}
    assert subjects == {"Plane Geometry", "Functions", "Solid Geometry"}
