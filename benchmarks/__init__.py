"""The benchmarks: one folder each; its `adapter.py` holds a `BENCHMARK`."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.protocols import Benchmark


def names() -> Sequence[str]:
    """The folders that hold an adapter, in alphabetical order; one that starts with _ is no benchmark."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("[!_]*/adapter.py"))


def load(name: str) -> Benchmark:
    """The benchmark of a folder.

    Raises:
        ConfigError: no such folder; the text lists those that there are.
    """
    known = names()
    if name not in known:
        raise ConfigError(f"benchmark {name!r}: no such folder in benchmarks/; there are: {', '.join(known)}")
    benchmark: Benchmark = import_module(f"benchmarks.{name}.adapter").BENCHMARK
    return benchmark
