"""Published rows of SWE-bench: their images, and how to run their tests.

The commands come from `swebench/harness/constants/python.py` of SWE-bench 4.1.0, without options for the output's look;
Sphinx's come from its tox.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import ItemImage, JsonObject
from skillopt_airflow.tasks.record_fields import text_at

from .patches import file_patches

FOLDER = "/testbed"
ENVIRONMENT = "/opt/miniconda3/envs/testbed"
DATA_SUFFIXES = frozenset({".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"})
"""Files in a test patch that aren't tests."""
RUNS: Mapping[str, Mapping[str, Any]] = {
    "astropy/astropy": {"args": ["-vv", "-o", "console_output_style=classic"]},
    "django/django": {"runner": "django"},
    "sphinx-doc/sphinx": {"env": {"PYTHONWARNINGS": "all"}},
    "sympy/sympy": {
        "runner": "sympy",
        "env": {"SYMPY_USE_CACHE": "no", "PYTHONWARNINGS": "ignore::UserWarning,ignore::SyntaxWarning"},
    },
}
"""Differences from plain pytest by repository."""
ROOTS: Mapping[str, str] = {"matplotlib/matplotlib": "lib:.", "pallets/flask": "src:.", "pytest-dev/pytest": "src:."}
"""Python path by repository; the default is the tree."""


def image_of(record: JsonObject, roots: tuple[str, ...]) -> ItemImage:
    """Return the row's `image`, else the published image of its instance."""
    named = record.get("image")
    published = f"swebench/sweb.eval.x86_64.{text_at(record, 'instance_id').replace('__', '_1776_').lower()}:latest"
    name = named if isinstance(named, str) and named else published
    return ItemImage(name=name, folder=FOLDER, environment=ENVIRONMENT, import_roots=roots)


def official_run(record: JsonObject) -> dict[str, Any]:
    """Return how to run the tests of a row, as in run.json.

    Raises:
        DataError: the test patch has no test file.
    """
    repo = text_at(record, "repo")
    changed = [file.path for file in file_patches(text_at(record, "test_patch"))]
    files = [path for path in dict.fromkeys(changed) if PurePosixPath(path).suffix not in DATA_SUFFIXES]
    if not files:
        raise DataError("test_patch: it changes no file of tests")
    run = {"runner": "pytest", "pythonpath": ROOTS.get(repo, "."), **RUNS.get(repo, {})}
    if run["runner"] == "django":
        files = [path.removeprefix("tests/").removesuffix(".py").replace("/", ".") for path in files]
    return {**run, "files": files}
