"""Rules on the source files themselves; those on who imports whom are import-linter's (pyproject.toml)."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import image

PROJECT = Path(__file__).parents[1]
FOLDERS = ("include", "benchmarks", "dags", "local", "bench")
SOURCES = sorted(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py"))
MOST_LINES = 60
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)

every_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """The modules that the file imports anywhere, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module


@every_source
def test_a_function_fits_on_a_screen(path: Path) -> None:
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}


@every_source
def test_a_module_keeps_no_state(path: Path) -> None:
    module = tree(path)
    assert not [node.names for node in ast.walk(module) if isinstance(node, ast.Global)]
    bound = [
        (target.id, node.value)
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    named_as_variable = [name for name, value in bound if isinstance(value, MUTABLE) and not name.isupper()]
    assert named_as_variable in ([], ["__all__"])


@pytest.mark.parametrize("path", image.program_files(PROJECT), ids=str)
def test_the_sandbox_image_has_all_that_its_program_imports(path: Path) -> None:
    lock = (PROJECT / image.REQUIREMENTS).read_text(encoding="utf-8")
    pinned = {name.replace("-", "_") for name in re.findall(r"^([\w-]+)==", lock, re.MULTILINE)} | {"pydantic_ai"}
    files = (file.with_suffix("") for file in image.program_files(PROJECT))
    own = {".".join(file.parts).removeprefix("include.").removesuffix(".__init__") for file in files}
    for module in imported(PROJECT / path):
        top = module.partition(".")[0]
        assert module in own if top == "skillopt_airflow" else top in sys.stdlib_module_names | pinned, module


def test_the_sandbox_image_gets_no_data_and_no_other_part_of_the_project() -> None:
    for path in image.program_files(PROJECT):
        assert path.suffix == ".py"
        adapter = path.parts[0] == "benchmarks" and path.name == "adapter.py"
        assert adapter or path.parts[2] in {"benchmarks.py", "core", "rollout", "__init__.py"}


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
            assert module.startswith("skillopt_airflow.core.") or path.name == "standin.py", module
        else:
            assert top not in FOLDERS, module
            assert path.name != "adapter.py" or top in sys.stdlib_module_names, module
