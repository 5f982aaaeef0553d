"""Rows of SWE-bench as they are published, and their splits; the sample has tests of its own."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import real_data
from benchmarks.swebench import make_splits
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject

BENCHMARK = benchmarks.load("swebench")
REAL = real_data.REAL_DATA / "swebench" / "dev.json"


def record(repo: str = "pvlib/pvlib-python", *tests: str) -> JsonObject:
    changes = [f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1,2 @@\n a\n+b\n" for path in tests]
    return {
        "repo": repo,
        "instance_id": f"{repo.replace('/', '__')}-1072",
        "base_commit": "0" * 40,
        "patch": "",
        "test_patch": "".join(changes),
        "problem_statement": "It is wrong.",
        "hints_text": "",
        "created_at": "",
        "version": "1.0",
        "FAIL_TO_PASS": '["a"]',
        "PASS_TO_PASS": "[]",
        "environment_setup_commit": "",
    }


def test_a_published_row_stands_for_its_image():
    """Row 16 of the table of official examples."""
    image = BENCHMARK.item(record("pvlib/pvlib-python", "tests/test_a.py")).image
    assert image
    assert image.name == "swebench/sweb.eval.x86_64.pvlib_1776_pvlib-python-1072:latest"
    assert (image.folder, image.environment) == ("/testbed", "/opt/miniconda3/envs/testbed")
    named = BENCHMARK.item({**record("a/b", "tests/test_a.py"), "image": "mine/of-b:1"}).image
    assert named
    assert named.name == "mine/of-b:1"


def test_how_the_tests_of_a_published_row_run():
    for repo, changed, runner, files in (
        ("pvlib/pvlib-python", ("tests/test_a.py", "tests/data/a.csv"), "pytest", ["tests/test_a.py"]),
        ("django/django", ("tests/q/test_q.py", "tests/q/models.py"), "django", ["q.test_q", "q.models"]),
        ("sympy/sympy", ("sympy/core/tests/test_expr.py",), "sympy", ["sympy/core/tests/test_expr.py"]),
    ):
        run = BENCHMARK.item(record(repo, *changed)).reference["run"]
        assert isinstance(run, dict)
        assert (run["runner"], run["files"]) == (runner, files)
    with pytest.raises(DataError, match="no file of tests"):
        BENCHMARK.item(record("a/b", "tests/data.json"))


@pytest.mark.parametrize("kind", ["parquet", "json", "jsonl"])
def test_a_published_file_becomes_splits(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{**record("a/b", "tests/test_a.py"), "instance_id": f"a__b-{number}"} for number in range(10)]
    file = tmp_path / f"lite.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([{**row, "difficulty": "easy", "image": None} for row in rows]), file)
    elif kind == "json":
        file.write_text(json.dumps(rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_splits.main(file, tmp_path / "out")
    assert "test: 7 instances\n" in capsys.readouterr().out
    found = [json.loads((tmp_path / "out" / split / "items.json").read_bytes()) for split in ("train", "val", "test")]
    assert sorted(row["instance_id"] for split in found for row in split) == [row["instance_id"] for row in rows]
    assert all(row == {**record("a/b", "tests/test_a.py"), "instance_id": row["instance_id"]} for row in found[2])


def test_a_repository_is_cut_as_by_the_reference_implementation():
    sizes = {1: (0, 0, 1), 2: (1, 0, 1), 3: (1, 1, 1), 10: (2, 1, 7), 13: (3, 1, 9), 114: (23, 11, 80)}
    assert {size: tuple(make_splits.counts(size).values()) for size in sizes} == sizes


def test_a_file_that_is_none_is_named(tmp_path: Path):
    for text, said in {"[{": "lite.json", '[{"repo": "a/b"}]': "row 1 .*instance_id, base_commit"}.items():
        (tmp_path / "lite.json").write_text(text)
        with pytest.raises(SystemExit, match=said):
            make_splits.main(tmp_path / "lite.json", tmp_path)


@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not there")
def test_every_row_of_the_development_split_is_an_item():
    items = [BENCHMARK.item(row) for row in json.loads(REAL.read_bytes())]
    assert len(items) == 23
    assert all(item.reference["run"]["files"] for item in items)
