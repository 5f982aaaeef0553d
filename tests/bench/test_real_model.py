"""Trainings of `make real`, with the stand-in as the model."""

import csv
import re
from pathlib import Path

import pytest

from bench import real_model, tables
from bench.real_place import EXAMPLE, place
from local.served import served
from local.standin.server import StandInServer
from skillopt_airflow.core.values.types import Split

RECORD = re.compile(r"\d{4}-\d\d-\d\d \| [A-Z][A-Z &']+ \| \d+\.\d\d")
MODEL = "openai-chat:stand-in"


def test_without_a_model_it_names_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert real_model.main([]) == 2
    assert "MODEL=" in capsys.readouterr().err


def test_a_file_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert real_model.main([str(tmp_path / "none.gguf")]) == 1
    assert f"MODEL = {tmp_path}/none.gguf" in capsys.readouterr().err


def test_only_the_records_show_the_format() -> None:
    with (EXAMPLE / "benchmark" / "notes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), len({row["note"] for row in rows})) == (160, 160)
    assert [row["id"] for row in rows if not RECORD.fullmatch(row["record"])] == []
    told = [(EXAMPLE / path).read_text(encoding="utf-8") for path in ("benchmark/benchmark.yaml", "skill/initial.md")]
    assert not any(re.search(r" \| |YYYY|capital|decimal", text, re.IGNORECASE) for text in told)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_example_is_trained_and_its_table_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import real_training

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    with served(StandInServer("127.0.0.1", 0)) as server, place(tmp_path / "real", server.base_url, MODEL) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        real_training.measure(MODEL, "A stand-in", 1)
        run = real_training.open_run("seed-1")
        sizes = [len(run.item_refs(split)) for split in (Split.TRAIN, Split.VAL, Split.TEST)]
    assert sizes == [60, 24, 60]
    page = (tmp_path / "real_model.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    scored = {row[0]: float(row[1].split()[0]) for row in rows if row[0] != "| skill" and "skill" in row[0]}
    assert scored.keys() == {"| seed skill", "| hand-written skill", "| best skill, seed 1"}
    assert scored["| best skill, seed 1"] > scored["| seed skill"]
    assert "+++ best skill" in page
