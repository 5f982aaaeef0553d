from pathlib import Path

import pytest

from skillopt_airflow.core.config import StorageGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Item, ItemFile, Split
from skillopt_airflow.store.files import DataFiles, FileStore
from skillopt_airflow.training.preparation import store_files
from skillopt_airflow.training.run import RunRef, TrainingRun
from tests.training.in_process import InProcessConnections


@pytest.fixture
def run() -> TrainingRun:
    ref = RunRef(benchmark="spreadsheetbench", run="r", storage=StorageGroup(prefix="team/"))
    return TrainingRun(ref, InProcessConnections())


def item(name: str, golden: str = "golden.xlsx") -> Item:
    return Item(
        id=name,
        public={},
        reference={},
        files=(ItemFile(name="input.xlsx", path="books/*init*.xlsx"),),
        reference_files=(ItemFile(name="golden.xlsx", path=f"books/{golden}"),),
    )


@pytest.fixture
def folder(tmp_path: Path) -> DataFiles:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "1_a_init.xlsx").write_bytes(b"before")
    (tmp_path / "books" / "golden.xlsx").write_bytes(b"after")
    return DataFiles(str(tmp_path), tmp_path, None)  # type: ignore[arg-type]


def test_items_get_the_hashes_of_their_files_which_are_stored_once(run: TrainingRun, folder: DataFiles) -> None:
    plain = Item(id="plain", public={}, reference={})
    items = store_files(run, {Split.TRAIN: [item("a"), plain], Split.VAL: [item("b")]}, folder)
    assert items[Split.TRAIN][1] == plain
    kept = FileStore(run.store, "team/")
    for one in (items[Split.TRAIN][0], items[Split.VAL][0]):
        assert [kept.get(file.sha256) for file in (*one.files, *one.reference_files)] == [b"before", b"after"]
    assert len(run.store.list_keys("team/files/")) == len(run.store.list_keys("")) == 2


def test_a_missing_file_is_named_with_its_row_and_item(run: TrainingRun, folder: DataFiles, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"val row 2, item b: {tmp_path}/books/none\.xlsx: No such file"):
        store_files(run, {Split.VAL: [item("a"), item("b", "none.xlsx")]}, folder)
