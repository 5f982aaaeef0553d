"""Find and load the benchmarks: one folder each; the `adapter.py` of a folder holds a `BENCHMARK`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.protocols import Benchmark

PROJECT_VARIABLE = "SKILLOPT_PROJECT"
"""Environment variable: the folder that holds benchmarks/ and skills/, for a project of one's own."""


def project() -> Path:
    """Return the folder that holds benchmarks/ and skills/.

    It is the one that the environment names, else what the wheel or the image carries, else the checkout.
    """
    chosen = os.environ.get(PROJECT_VARIABLE)
    carried = Path(__file__).with_name("project")
    if chosen:
        return Path(chosen)
    return carried if carried.is_dir() else Path(__file__).parents[2]


def folder(name: str) -> Path:
    """Return the folder of a benchmark."""
    return project() / "benchmarks" / name


def seed_skill(name: str) -> Path:
    """Return the file of a benchmark's seed skill."""
    return project() / "skills" / name / "initial.md"


def names() -> Sequence[str]:
    """Return the folders that hold an adapter, in alphabetical order; a leading _ marks what is no benchmark.

    Raises:
        ConfigError: there is no folder benchmarks/.
    """
    home = project() / "benchmarks"
    if not home.is_dir():
        raise ConfigError(
            f"{home}: no such folder; {PROJECT_VARIABLE} names the one that holds benchmarks/ and skills/"
        )
    return sorted(path.parent.name for path in home.glob("[!_]*/adapter.py"))


def load(name: str) -> Benchmark:
    """Return the benchmark of a folder.

    Raises:
        ConfigError: no such folder; the text lists those that there are.
    """
    known = names()
    if name not in known:
        raise ConfigError(f"benchmark {name!r}: no such folder in benchmarks/; there are: {', '.join(known)}")
    benchmark: Benchmark = load_file(name, "adapter").BENCHMARK
    return benchmark


def load_file(name: str, file: str) -> ModuleType:
    """Import a Python file of a benchmark's folder, below a package name that nobody else uses."""
    package, place = f"_skillopt_benchmark_{name}", str(folder(name))
    if package not in sys.modules or place not in sys.modules[package].__path__:
        for loaded in [module for module in sys.modules if module.partition(".")[0] == package]:
            del sys.modules[loaded]
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [place]
        sys.modules[package] = module_from_spec(spec)
    return import_module(f"{package}.{file}")
