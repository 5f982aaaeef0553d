"""The benchmarks that there are, by SKILLOPT_BENCHMARKS: names in benchmarks/, and folders elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import ModuleType

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.tasks.declared_task import DeclaredTask
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config

OURS = [path.parent.name for path in sorted((benchmarks.project() / "benchmarks").glob("[a-z]*/benchmark.yaml"))]


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter.py").write_text("BENCHMARK = 'mine'\n")
    return folder


def listed(monkeypatch: pytest.MonkeyPatch, *entries: Path | str) -> None:
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, ",".join(map(str, entries)))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only benchmark that is listed."""
    folder = make(tmp_path / "mine")
    listed(monkeypatch, folder)
    return folder


def test_without_a_list_there_are_all_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(benchmarks.LIST_VARIABLE, raising=False)
    assert benchmarks.names() == OURS
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, " , ")
    assert benchmarks.names() == OURS


def test_a_list_holds_names_of_ours_and_folders_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make(tmp_path / "mine")
    listed(monkeypatch, " searchqa", f"{mine}/ ", "")
    assert benchmarks.names() == ["mine", "searchqa"]
    assert benchmarks.folder("mine") == mine
    assert benchmarks.load("mine") == "mine"
    with pytest.raises(ConfigError, match=r"'spreadsheetbench'.*mine, searchqa"):
        benchmarks.load("spreadsheetbench")


def test_a_benchmark_is_declared_or_programmed_and_not_both(mine: Path) -> None:
    (mine / "benchmark.yaml").write_text("task: {prompt: '{{ x }}', reference: y, score: {by: exact}}\n")
    with pytest.raises(ConfigError, match=r"mine/benchmark\.yaml: .* task .*adapter\.py"):
        benchmark_config("mine")
    (mine / "adapter.py").unlink()
    assert isinstance(benchmarks.load("mine", benchmark_config("mine").task), DeclaredTask)
    (mine / "benchmark.yaml").write_text("train: {seed: 1}\n")
    with pytest.raises(ConfigError, match=r"mine: .*benchmark\.yaml .*adapter\.py"):
        benchmarks.load("mine", benchmark_config("mine").task)
    # A prompt that reads no column is refused when the benchmark is read.
    (mine / "benchmark.yaml").write_text("task: {prompt: 'Q: {question}', reference: y, score: {by: exact}}\n")
    with pytest.raises(ConfigError, match=r"mine/benchmark\.yaml: task\.prompt"):
        benchmark_config("mine")


def test_the_seed_skill_lies_in_skills_or_beside_the_adapter(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, mine, benchmarks.project() / "benchmarks" / "searchqa")
    assert benchmarks.seed_skill("mine") == mine / "initial.md"
    assert benchmarks.seed_skill("searchqa") == benchmarks.project() / "skills" / "searchqa" / "initial.md"


def test_guidance_is_a_file_a_stage_and_other_files_are_named(mine: Path) -> None:
    assert benchmarks.guidance("mine") == {}
    (mine / "guidance").mkdir()
    (mine / "guidance" / "reflect.md").write_text("Look at the feedback.\n")
    (mine / "guidance" / ".swp").write_text("an editor's")
    assert benchmarks.guidance("mine") == {"reflect": "Look at the feedback."}
    for name, text in (("reflection.md", "x"), ("merge.txt", "x"), ("merge.md", " ")):
        (mine / "guidance" / name).write_text(text)
        with pytest.raises(ConfigError, match=f"guidance/{name}"):
            benchmarks.guidance("mine")
        (mine / "guidance" / name).unlink()
    # Hidden text is refused with file and line; the invisible characters of emojis are only removed.
    (mine / "guidance" / "reflect.md").write_text("Look at\nthe\u200b feedback.\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"guidance/reflect\.md: .* U\+200B in line 2"):
        benchmarks.guidance("mine")
    (mine / "guidance" / "reflect.md").write_text("Good \u2764\ufe0f\n", encoding="utf-8")
    assert benchmarks.guidance("mine") == {"reflect": "Good \u2764"}


def test_two_of_one_name_and_what_is_no_benchmark_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = make(tmp_path / "a" / "mine"), make(tmp_path / "b" / "mine")
    listed(monkeypatch, one, "searchqa", other, "searchqa")
    assert benchmarks.names() == ["mine", "searchqa"]
    assert benchmarks.folder("searchqa").name == "searchqa"
    with pytest.raises(ConfigError, match=f"mine: {one} and {other}"):
        benchmarks.folder("mine")
    for entry in ("invoices", "/nowhere/invoices"):
        listed(monkeypatch, "searchqa", entry)
        with pytest.raises(ConfigError, match=r"invoices .*alfworld, babyvision"):
            benchmarks.folder("invoices")


def test_a_name_that_cannot_be_a_part_of_dag_ids_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("two words", "_mine", "mine_epoch"):
        listed(monkeypatch, make(tmp_path / name))
        with pytest.raises(ConfigError, match=name):
            benchmarks.folder(name)


@pytest.mark.parametrize(
    ("adapter", "said"),
    [("x = (\n", "SyntaxError.*line 1"), ("import nosuch\n", "nosuch"), ("x = 1\n", "no attribute 'BENCHMARK'")],
)
def test_an_adapter_that_cannot_be_imported_is_named(adapter: str, said: str, mine: Path) -> None:
    (mine / "adapter.py").write_text(adapter)
    with pytest.raises(ConfigError, match=f"{mine}/adapter.py: .*{said}"):
        benchmarks.load("mine")


def test_a_benchmark_is_loaded_while_another_thread_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, *(make(tmp_path / f"mine{number}") for number in range(20)))
    with another_thread_importing():
        assert [benchmarks.load(f"mine{number}") for number in range(20)] == ["mine"] * 20


@contextmanager
def another_thread_importing() -> Iterator[None]:
    """Have a second thread add modules all the time; the processor changes hands as often as it can."""
    interval, enough = sys.getswitchinterval(), Event()

    def add() -> None:
        names: list[str] = []
        while not enough.is_set():
            names.append(f"_added_by_a_test_{len(names)}")
            sys.modules[names[-1]] = ModuleType(names[-1])
        for name in names:
            del sys.modules[name]

    adding = Thread(target=add)
    sys.setswitchinterval(1e-6)
    adding.start()
    try:
        yield
    finally:
        enough.set()
        adding.join()
        sys.setswitchinterval(interval)
