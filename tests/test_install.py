"""The package in an Airflow of somebody else's: installed as a wheel, with three lines in a DAG file."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

PROJECT = Path(__file__).parents[1]
PROBE = Path(__file__).with_name("dag_probe.py")
PAGE = (PROJECT / "docs" / "own_airflow.md").read_text(encoding="utf-8")
DAG_FILES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DAG_FILE = DAG_FILES[0]


def dags_found(dag_file: Path, home: Path, **variables: str) -> set[str]:
    """The DAGs that a file of its own has, in a process that knows nothing of the checkout."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "SKILLOPT_"))}
    done = subprocess.run(
        [sys.executable, str(PROBE), str(dag_file)],
        env=own | {"AIRFLOW_HOME": str(home), **variables},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1])["dags"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", folder, PROJECT], check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    command = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    subprocess.run([*command, "--target", folder, wheel], check=True)
    return folder


def test_the_readme_shows_the_dag_files_of_this_repository() -> None:
    assert sorted(DAG_FILES) == sorted(path.read_text() for path in PROJECT.glob("dags/*.py"))


@pytest.mark.nightly
def test_three_lines_give_an_airflow_the_dags_of_this_project(installed: Path, tmp_path: Path) -> None:
    assert len([line for line in DAG_FILE.splitlines() if line]) == 3
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "skillopt.py").write_text(DAG_FILE)
    here = {"PYTHONPATH": f"{PROJECT / 'include'}:{PROJECT}"}
    checkout = {dag for path in PROJECT.glob("dags/*.py") for dag in dags_found(path, tmp_path, **here)}
    assert "train_searchqa" in checkout
    assert dags_found(tmp_path / "dags" / "skillopt.py", tmp_path, PYTHONPATH=str(installed)) == checkout


@pytest.mark.nightly
def test_an_airflow_of_ones_own_has_the_benchmarks_that_are_listed(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in ("adapter.py", "benchmark.yaml"):
        (folder / file).write_bytes((PROJECT / "benchmarks" / "_template" / file).read_bytes())
    (tmp_path / "skillopt.py").write_text(DAG_FILE)
    variables = {"PYTHONPATH": str(installed), "SKILLOPT_BENCHMARKS": str(folder)}
    found = dags_found(tmp_path / "skillopt.py", tmp_path, **variables)
    assert "train_mine" in found
    assert {name.endswith("_mine") or "_mine_" in name for name in found if name != "skillopt_cleanup"} == {True}


def test_the_wheel_has_samples_and_seeds_and_nothing_of_the_local_platform(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in files} == {"skillopt_airflow"}
    for name in (
        "optimizer/prompts/reflect.md",
        "project/benchmarks/searchqa/sample/val/items.json",
        "project/benchmarks/spreadsheetbench/scoring.py",
        "project/benchmarks/_template/README.md",
        "project/skills/searchqa/initial.md",
    ):
        assert f"skillopt_airflow/{name}" in files
    assert not [name for name in files if name.endswith(".pyc")]


@pytest.mark.nightly
@pytest.mark.slow
def test_the_copied_file_gives_an_airflow_the_pages_once(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    copied = tmp_path / "plugins" / "skillopt.py"
    copied.write_bytes((PROJECT / "plugins" / "skillopt.py").read_bytes())
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "SKILLOPT_"))}
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "plugins", "--output", "json"],
        env=own | {"AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to import plugin" not in done.stdout + done.stderr
    found = next(line for line in done.stdout.splitlines() if line.startswith("[{"))
    assert [row["name"] for row in json.loads(found)].count("skillopt") == 1
