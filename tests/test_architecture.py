"""Rules on the source files themselves; those on who imports whom are import-linter's (pyproject.toml)."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import image

PROJECT = Path(__file__).parents[1]
FOLDERS = ("include", "benchmarks", "dags", "plugins", "local", "bench")
SOURCES = sorted(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py"))
MOST_LINES = 60


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """The modules that the file imports anywhere, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_function_fits_on_a_screen(path: Path) -> None:
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}


ENGINE = {"alfworld.agents.environment.alfred_tw_env", "textworld", "textworld.envs.pddl"}
ELSEWHERE = {
    "prompt_template": {"jinja2", "jinja2.sandbox"},
    "worlds": ENGINE,
    "consumer": {"boto3", "botocore.config", "botocore.exceptions", "mypy_boto3_s3"},
}
"""Imports of functions that the program in the sandbox image never calls, by file; another image may have them."""


@pytest.mark.parametrize("path", image.program_files(PROJECT).values(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_sandbox_image_has_the_packages_that_its_program_imports(path: Path) -> None:
    lock = (PROJECT / image.REQUIREMENTS).read_text(encoding="utf-8")
    pinned = {name.replace("-", "_") for name in re.findall(r"^([\w-]+)==", lock, re.MULTILINE)} | {"pydantic_ai"}
    tops = {module.partition(".")[0] for module in set(imported(path)) - ELSEWHERE.get(path.stem, set())}
    assert tops <= sys.stdlib_module_names | pinned | {"skillopt_airflow"}


@pytest.mark.parametrize("name", ["sandbox", "gateway"])
def test_an_image_has_the_modules_that_its_program_imports(name: str) -> None:
    files = image.RECIPES[name].program(PROJECT)
    own = {".".join(place.with_suffix("").parts).removesuffix(".__init__") for place in files}
    wanted = {module for path in files.values() for module in imported(path)}
    assert {module for module in wanted if module.startswith("skillopt_airflow")} <= own


def test_the_sandbox_image_gets_no_data_and_no_other_part_of_the_project() -> None:
    for place in image.program_files(PROJECT):
        assert place.suffix == ".py"
        adapter = place.parts[1:3] == ("project", "benchmarks") and place.name in image.IN_IMAGE
        assert adapter or place.parts[1] in {"benchmarks.py", "consumer.py", "core", "rollout", "__init__.py"}


@pytest.mark.parametrize(
    "path", sorted(PROJECT.glob("benchmarks/*/*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_benchmark_knows_its_own_folder_and_the_domain(path: Path) -> None:
    """An adapter also runs in the sandbox, so it has no package either; the files around it may."""
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.ImportFrom) or node.level < 2, "another benchmark's folder"
    for module in imported(path):
        top = module.partition(".")[0]
        if top == "skillopt_airflow":
            assert module.startswith("skillopt_airflow.core."), module
        else:
            assert top not in FOLDERS, module
            assert path.name not in ("adapter.py", "tools.py") or top in sys.stdlib_module_names, module
