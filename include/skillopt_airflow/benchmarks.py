"""Find and load the benchmarks, which are folders with a section `task` in benchmark.yaml or an adapter.py."""

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
"""Environment variable: the available benchmarks, separated by commas. Each is a name in benchmarks/ or the absolute
path of another folder. Default: all of benchmarks/."""
SEED_FILE = "initial.md"
GUIDED_STAGES = ("reflect", "deep_reflect", "merge", "rank", "rewrite", "slow_update", "meta_skill", "meta_reflect")
"""Optimizer calls to which a benchmark can add a text, as `guidance/<stage>.md` in its folder."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?<!_epoch)")
"""Names are parts of S3 keys and of DAG ids, to which trainings append _epoch."""


def project() -> Path:
    """Return the folder with benchmarks/ and skills/: inside the wheel or image, or else the checkout."""
    packaged = Path(__file__).with_name("project")
    return packaged if packaged.is_dir() else Path(__file__).parents[2]


def names() -> Sequence[str]:
    """Return the sorted names of the benchmarks; `folder` raises for unusable ones."""
    return sorted({place.name for place in _places()})


def folder(name: str) -> Path:
    """Return the folder of a benchmark.

    Raises:
        ConfigError: the name is unknown, ambiguous or invalid, or its folder has no benchmark.
    """
    places = [place for place in _places() if place.name == name]
    if not places:
        raise ConfigError(f"Unknown benchmark {name!r}. Available: {', '.join(names())}")
    if len(places) > 1:
        both = " and ".join(map(str, places))
        raise ConfigError(
            f"{LIST_VARIABLE}: two benchmarks are called {name}: {both}. Rename a folder, or list only one"
        )
    if not _is_benchmark(places[0]):
        raise ConfigError(
            f"{LIST_VARIABLE}: {places[0]} isn't a folder with a benchmark.yaml or an adapter.py. List absolute paths "
            f"of folders, or names in benchmarks/: {', '.join(place.name for place in _own())}"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{places[0]}: not a valid name of a benchmark. Rename the folder: names consist of letters, digits, "
            "dashes and underscores, start with a letter or digit, and don't end in _epoch"
        )
    return places[0]


def seed_skill(name: str) -> Path:
    """Return the file of a benchmark's seed skill: in skills/ for those in benchmarks/, else in its own folder."""
    place, home = folder(name), project()
    return (home / "skills" / name if place.parent == home / "benchmarks" else place) / SEED_FILE


def guidance(name: str) -> dict[str, str]:
    """Return a benchmark's texts for the optimizer by stage, from its files guidance/<stage>.md.

    Raises:
        ConfigError: a file isn't named after a stage, is blank, or has hidden characters or commands.
    """
    texts = {}
    for file in sorted((folder(name) / "guidance").glob("[!.]*")):
        text = file.read_text(encoding="utf-8").strip() if file.suffix == ".md" and file.stem in GUIDED_STAGES else ""
        if not text:
            known = ", ".join(f"{stage}.md" for stage in GUIDED_STAGES)
            raise ConfigError(
                f"{file}: expected a non-empty file with the name of an optimizer call. Use one of {known}"
            )
        texts[file.stem] = text = plain(text)
        if flaw := flaw_of_text(text):
            raise ConfigError(f"{file}: the text {flaw}. Remove it.")
    return texts


def load(name: str, task: JsonObject | None = None) -> Benchmark:
    """Return the benchmark that a section `task` declares or, without one, the folder's adapter defines.

    Raises:
        ConfigError: the name is unknown, or its adapter can't be imported.
    """
    if task is not None:
        # Imported here because it loads all rules, which few containers need.
        from skillopt_airflow.tasks.declared_task import declared_benchmark
        from skillopt_airflow.tasks.task_group import task_of

        return declared_benchmark(task_of(task))
    file = folder(name) / "adapter.py"
    if not file.is_file():
        raise ConfigError(f"{file.parent}: add a section task to benchmark.yaml (docs/tasks.md), or an adapter.py")
    try:
        benchmark: Benchmark = load_file(name, "adapter").BENCHMARK
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{file}: importing failed: {type(error).__name__}: {error}") from error
    return benchmark


def _places() -> list[Path]:
    """Return the listed folders without duplicates; they may lack a benchmark."""
    listed = [entry.strip() for entry in os.environ.get(LIST_VARIABLE, "").split(",")]
    # Names are paths relative to benchmarks/; absolute paths stay unchanged.
    own = project() / "benchmarks"
    places = [Path(os.path.normpath(own / entry)) for entry in listed if entry]
    return list(dict.fromkeys(places)) if places else _own()


def _own() -> list[Path]:
    return sorted(place for place in (project() / "benchmarks").glob("[!_]*") if _is_benchmark(place))


def _is_benchmark(place: Path) -> bool:
    return any((place / file).is_file() for file in ("benchmark.yaml", "adapter.py"))


def load_file(name: str, file: str) -> ModuleType:
    """Import a Python file of a benchmark's folder, below a unique package name."""
    package, place = f"_skillopt_benchmark_{name}", str(folder(name))
    if package not in sys.modules or place not in sys.modules[package].__path__:
        # Iterate over a copy, since another thread may be importing.
        for loaded in [module for module in list(sys.modules) if module.partition(".")[0] == package]:
            del sys.modules[loaded]
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [place]
        sys.modules[package] = module_from_spec(spec)
    return import_module(f"{package}.{file}")
