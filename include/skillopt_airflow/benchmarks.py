"""Find and load the benchmarks: one folder each, with a section `task` in benchmark.yaml or an adapter.py."""

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.text import flaw_of_text, plain
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.tasks.protocols import Benchmark

LIST_VARIABLE = "SKILLOPT_BENCHMARKS"
"""Environment variable: the benchmarks that there are, separated by commas. Each is a name in benchmarks/ or the
absolute path of a folder elsewhere; unset or empty, there are all of benchmarks/."""
SEED_FILE = "initial.md"
GUIDED_STAGES = ("reflect", "deep_reflect", "merge", "rank", "rewrite", "slow_update", "meta_skill", "meta_reflect")
"""Calls of the optimizer that a benchmark may add a text to: `guidance/<stage>.md` in its folder."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?<!_epoch)")
"""A name becomes a part of DAG ids, where trainings add _epoch, and of keys in S3."""


def project() -> Path:
    """Return the folder that holds benchmarks/ and skills/: what the wheel or the image carries, else the checkout."""
    carried = Path(__file__).with_name("project")
    return carried if carried.is_dir() else Path(__file__).parents[2]


def names() -> Sequence[str]:
    """Return the names of the benchmarks, in alphabetical order; `folder` says which of them cannot be used."""
    return sorted({place.name for place in _places()})


def folder(name: str) -> Path:
    """Return the folder of a benchmark.

    Raises:
        ConfigError: there is none of this name, there are two, or its folder holds none; the text says what there is.
    """
    places = [place for place in _places() if place.name == name]
    if not places:
        raise ConfigError(f"benchmark {name!r}: there is none of this name; there are: {', '.join(names())}")
    if len(places) > 1:
        both = " and ".join(map(str, places))
        raise ConfigError(f"{LIST_VARIABLE}: two benchmarks are called {name}: {both}; rename a folder, or list one")
    if not _is_benchmark(places[0]):
        raise ConfigError(
            f"{LIST_VARIABLE}: {places[0]} is no folder with a benchmark.yaml or an adapter.py; list names in "
            f"benchmarks/, which has {', '.join(place.name for place in _own())}, or absolute paths of other folders"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{places[0]}: rename the folder: the name of a benchmark consists of letters, digits, dashes and "
            "underscores, begins with a letter or digit, and does not end in _epoch"
        )
    return places[0]


def seed_skill(name: str) -> Path:
    """Return the file of a benchmark's seed skill: in skills/ for one of benchmarks/, else in its own folder."""
    place, home = folder(name), project()
    return (home / "skills" / name if place.parent == home / "benchmarks" else place) / SEED_FILE


def guidance(name: str) -> dict[str, str]:
    """Return what a benchmark tells the optimizer about itself, by stage: its files guidance/<stage>.md.

    Raises:
        ConfigError: a file there is named after no stage, is blank, or has hidden characters or commands.
    """
    found = {}
    for file in sorted((folder(name) / "guidance").glob("[!.]*")):
        text = file.read_text(encoding="utf-8").strip() if file.suffix == ".md" and file.stem in GUIDED_STAGES else ""
        if not text:
            known = ", ".join(f"{stage}.md" for stage in GUIDED_STAGES)
            raise ConfigError(f"{file}: expected a text for one of the optimizer's calls, in a file {known}")
        found[file.stem] = text = plain(text)
        if flaw := flaw_of_text(text):
            raise ConfigError(f"{file}: the text {flaw}. Remove it.")
    return found


def load(name: str, task: JsonObject | None = None) -> Benchmark:
    """Return the benchmark that a section `task` declares or, without one, that the adapter of a folder holds.

    Raises:
        ConfigError: there is none of this name, or its adapter cannot be imported; the text names the file.
    """
    if task is not None:
        # Few containers need it, and it brings the rules of all sections along.
        from skillopt_airflow.tasks.declared_task import declared_benchmark
        from skillopt_airflow.tasks.task_group import TaskGroup

        return declared_benchmark(TaskGroup.model_validate(task))
    file = folder(name) / "adapter.py"
    if not file.is_file():
        raise ConfigError(f"{file.parent}: give benchmark.yaml a section task (docs/tasks.md), or add an adapter.py")
    try:
        benchmark: Benchmark = load_file(name, "adapter").BENCHMARK
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{file}: it cannot be imported: {type(error).__name__}: {error}") from error
    return benchmark


def _places() -> list[Path]:
    """Return the folders that are listed, each once, whatever they hold."""
    listed = [entry.strip() for entry in os.environ.get(LIST_VARIABLE, "").split(",")]
    # A name is a path relative to benchmarks/; an absolute path stays what it is.
    own = project() / "benchmarks"
    places = [Path(os.path.normpath(own / entry)) for entry in listed if entry]
    return list(dict.fromkeys(places)) if places else _own()


def _own() -> list[Path]:
    return sorted(place for place in (project() / "benchmarks").glob("[!_]*") if _is_benchmark(place))


def _is_benchmark(place: Path) -> bool:
    return any((place / file).is_file() for file in ("benchmark.yaml", "adapter.py"))


def load_file(name: str, file: str) -> ModuleType:
    """Import a Python file of a benchmark's folder, below a package name that nobody else uses."""
    package, place = f"_skillopt_benchmark_{name}", str(folder(name))
    if package not in sys.modules or place not in sys.modules[package].__path__:
        # The list is a copy: another thread may be importing.
        for loaded in [module for module in list(sys.modules) if module.partition(".")[0] == package]:
            del sys.modules[loaded]
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [place]
        sys.modules[package] = module_from_spec(spec)
    return import_module(f"{package}.{file}")
