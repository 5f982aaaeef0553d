"""The sample, and the benchmark's own items where they are at hand."""

import io
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.real_data import ABSENT, REAL_DATA
from benchmarks.spreadsheetbench import scoring
from benchmarks.spreadsheetbench.adapter import BENCHMARK, answer_cells
from benchmarks.spreadsheetbench.scoring import compare
from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, JsonObject, Score
from skillopt_airflow.store.data.datasets import read_records
from skillopt_airflow.store.data.files import DataFiles

SAMPLE = benchmarks.folder("spreadsheetbench") / "sample"
REAL = REAL_DATA / "spreadsheetbench"
SOLVED_BY_DOING_NOTHING = {"408-39", "108-24", "463-17"}
"""Items whose initial workbook already holds the reference's values, by the benchmark's rules."""

LARGEST = {"51090", "80-42"}
"""Items whose workbooks take longer to read than those of all others together."""


def judged(item: Item, folder: Path, place: Path, *, initial: bool) -> Score:
    files = DataFiles(str(folder), folder, None)  # type: ignore[arg-type]
    golden, output = place / "golden.xlsx", place / "output.xlsx"
    golden.write_bytes(files.read(item.reference_files[0].path))
    output.write_bytes(files.read((item.files if initial else item.reference_files)[0].path))
    return compare(str(golden), str(output), answer_cells(str(item.public["answer_position"])))


def sample_items() -> list[Item]:
    records = read_records(str(SAMPLE), SAMPLE, "split_dir", None)  # type: ignore[arg-type]
    return [BENCHMARK.item(record) for split in DATA_SPLITS for record in records[split.value]]


def test_every_item_of_the_sample_is_unsolved_and_solved_by_its_reference(tmp_path: Path) -> None:
    for item in sample_items():
        assert judged(item, SAMPLE, tmp_path, initial=False).hard == 1.0
        assert judged(item, SAMPLE, tmp_path, initial=True).hard == 0.0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=ABSENT)
@pytest.mark.filterwarnings("ignore")
def test_the_benchmark_s_own_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The largest workbooks take seconds to read, and an item's reference would be read three times.
    read = lru_cache(maxsize=2)(lambda content, load=scoring._load: load(io.BytesIO(content)))
    monkeypatch.setattr(scoring, "_load", lambda path: read(Path(path).read_bytes()))
    # The safe parser is written in Python, and these files are known.
    for module in ("openpyxl.worksheet._reader", "openpyxl.reader.strings"):
        monkeypatch.setattr(f"{module}.iterparse", ElementTree.iterparse)
    records: list[JsonObject] = [
        record
        for name in ("train.json", "val.json")
        for record in read_records(name, REAL, "ratio", None)["all"]  # type: ignore[arg-type]
    ]
    items = [BENCHMARK.item(record) for record in records if str(record["id"]) not in LARGEST]
    assert len({item.id for item in items}) == 120 - len(LARGEST)
    golden, initial = {}, {}
    for item in items:
        golden[item.id] = judged(item, REAL, tmp_path, initial=False)
        initial[item.id] = judged(item, REAL, tmp_path, initial=True)
    assert {(score.hard, score.soft) for score in golden.values()} == {(1.0, 1.0)}
    assert {item for item, score in initial.items() if score.hard == 1.0} == SOLVED_BY_DOING_NOTHING
    assert sum(score.soft for score in initial.values()) / len(items) == pytest.approx(0.378, abs=0.001)
