"""Rules on the source files themselves; those on who imports whom are import-linter's (pyproject.toml)."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import image
from skillopt_airflow.core.config.train_config import fields_by_path

PROJECT = Path(__file__).parents[1]
FOLDERS = ("include", "benchmarks", "dags", "plugins", "local", "bench")
PACKAGE = PROJECT / "include" / "skillopt_airflow"
SOURCES = sorted(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py"))
MAX_LINES = 60
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
    assert not {name: count for name, count in lines.items() if count > MAX_LINES}


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


ENGINE = {"alfworld.agents.environment.alfred_tw_env", "textworld", "textworld.envs.pddl"}
ELSEWHERE = {
    "prompt_template": {"jinja2", "jinja2.sandbox"},
    "worlds": ENGINE,
    "paired": {"scipy.special"},
    "night_verdict": {"scipy.special"},
    "policies": {"scipy.special"},
    "run_gates": {"scipy.special", "numpy.typing"},
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
        assert adapter or place.parts[1] in {"benchmarks.py", "consumer.py", "core", "tasks", "rollout", "__init__.py"}


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
            assert module.startswith(("skillopt_airflow.core.", "skillopt_airflow.tasks.")), module
        else:
            assert top not in FOLDERS, module
            assert path.name not in ("adapter.py", "tools.py") or top in sys.stdlib_module_names, module


MODULES = {
    ".".join(path.relative_to(PROJECT / "include").with_suffix("").parts): path
    for path in sorted((PROJECT / "include").rglob("*.py"))
    if path.name not in {"__init__.py", "__main__.py"}
}


def test_the_tree_in_contributing_is_true() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    named: set[Path] = set()
    parent = Path()
    for line in text.splitlines():
        folder = line.split()[0]
        parent = parent if line.startswith(" ") else Path(folder)
        named.add(parent / folder if line.startswith(" ") else parent)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    folders = {Path(name).parts[0] for name in tracked.split("\0") if "/" in name and not name.startswith(".")}
    packages = {path.parent.relative_to(PACKAGE) for path in PACKAGE.glob("*/**/__init__.py")}
    inside = {Path("include") / folder for folder in packages} | {Path("local/standin")}
    assert named == {Path(folder) for folder in folders} | inside


@pytest.mark.nightly
def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports for types alone count as well."""
    imports = {module: {target for target in _targets(path) if target in MODULES} for module, path in MODULES.items()}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" > ".join(error.args[1]))


def _targets(path: Path) -> Iterator[str]:
    """The modules that the file imports, where `from package import module` names one as well."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)
    yield from imported(path)


DEFINE_KNOBS = ("training_groups", "service_groups", "resource_groups", "train_config")
CALLED = {"evaluation": "rules", "optimizer": "rules", "publishing": "rules", "sandbox": "limits"}
"""What the code calls a group that it gets by itself."""


def test_every_knob_is_read_somewhere() -> None:
    files = [file for folder in ("include", "dags", "benchmarks") for file in (PROJECT / folder).rglob("*.py")]
    code = "\n".join(file.read_text() for file in files if file.stem not in DEFINE_KNOBS)
    read = set(re.findall(r"\b(\w+)\.(?=(\w+))", code))
    knobs = [path.split(".") for path in fields_by_path()]
    assert [(group, key) for group, key in knobs if not {(group, key), (CALLED.get(group), key)} & read] == []
