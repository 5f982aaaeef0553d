"""Rows of SWE-bench as they are published: the images that they stand for, and how their tests run there.

The commands are those of `swebench/harness/constants/python.py` of SWE-bench 4.1.0, without what only changes how the
output looks; those of Sphinx are what its tox runs.
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
"""Files of a change of tests that are no tests themselves."""
RUNS: Mapping[str, Mapping[str, Any]] = {
    "astropy/astropy": {"args": ["-vv", "-o", "console_output_style=classic"]},
    "django/django": {"runner": "django"},
    "sphinx-doc/sphinx": {"env": {"PYTHONWARNINGS": "all"}},
    "sympy/sympy": {
        "runner": "sympy",
        "env": {"SYMPY_USE_CACHE": "no", "PYTHONWARNINGS": "ignore::UserWarning,ignore::SyntaxWarning"},
    },
}
"""What differs from plain pytest, by repository."""
ROOTS: Mapping[str, str] = {"matplotlib/matplotlib": "lib:.", "pallets/flask": "src:.", "pytest-dev/pytest": "src:."}
"""Folders on Python's path, where that is not the tree alone."""


def image_of(record: JsonObject, roots: tuple[str, ...]) -> ItemImage:
    """Return the image of a row: the one that it names in `image`, or else the one published for its instance."""
    named = record.get("image")
    published = f"swebench/sweb.eval.x86_64.{text_at(record, 'instance_id').replace('__', '_1776_').lower()}:latest"
    name = named if isinstance(named, str) and named else published
    return ItemImage(name=name, folder=FOLDER, environment=ENVIRONMENT, import_roots=roots)


def official_run(record: JsonObject) -> dict[str, Any]:
    """Return how the tests of a row run, in the form of a run.json.

    Raises:
        DataError: the change of the tests has no file that a runner could be given.
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
