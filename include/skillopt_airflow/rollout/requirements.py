"""Checks that a benchmark and the settings fit the harness, before anything runs."""

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.tasks.declared_task import DeclaredFilesTask
from skillopt_airflow.tasks.protocols import Benchmark, JudgesRepository, OffersTools, PlaysSession, Searches


def with_tools(benchmark: Benchmark) -> OffersTools:
    """Return the benchmark as one that has tools.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(benchmark, OffersTools):
        others = " or ".join(name for name, harness in HARNESSES.items() if not harness.needs_tools)
        raise ConfigError(
            f"model.harness = 'tools': this benchmark has no tools; use harness {others}, or give its adapter the "
            "methods task and tools (OffersTools in include/skillopt_airflow/tasks/protocols.py), or its section task "
            "the key files"
        )
    return benchmark


def check_tools(benchmark: Benchmark) -> None:
    """Refuse a benchmark that the harness tools cannot run.

    Raises:
        ConfigError: it has neither tools nor sessions, whose one tool is to act.
    """
    if not isinstance(benchmark, PlaysSession):
        with_tools(benchmark)


def check_requirements(model: ModelGroup, benchmark: Benchmark) -> None:
    """Refuse a harness that could not run any item.

    Raises:
        ConfigError: naming the key and what to do.
    """
    harness = HARNESSES[model.harness]
    is_agent = harness.needs_tools or harness.is_cli
    if isinstance(benchmark, DeclaredFilesTask) and benchmark.needs_agent and not is_agent:
        agents = " or ".join(name for name, one in HARNESSES.items() if one.needs_tools or one.is_cli)
        raise ConfigError(
            f"model.harness = {model.harness!r}: the items have files (task.files), which an agent has to read; set "
            f"model.harness to {agents}"
        )
    if isinstance(benchmark, PlaysSession) and harness.is_cli:
        others = " or ".join(name for name, one in HARNESSES.items() if not one.is_cli)
        raise ConfigError(
            f"model.harness = {model.harness!r}: the items are worlds whose goal an agent that runs code could look up "
            f"in their process; set model.harness to {others}"
        )
    if isinstance(benchmark, JudgesRepository) and not is_agent:
        agents = " or ".join(name for name, one in HARNESSES.items() if one.needs_tools or one.is_cli)
        raise ConfigError(
            f"model.harness = {model.harness!r}: the items are repositories, in which an agent has to work; set "
            f"model.harness to {agents}"
        )
    if not harness.needs_tools:
        return
    check_tools(benchmark)
    if model.max_turns < 2:
        raise ConfigError(
            f"model.max_turns = {model.max_turns}: harness tools needs at least 2, one to call a tool and one to "
            "answer; 10 is a start"
        )


def check_search(search: SearchGroup, benchmark: Benchmark) -> None:
    """Refuse a search that no tool would ask.

    Raises:
        ConfigError: the benchmark does not search.
    """
    if search.conn_id is not None and not (isinstance(benchmark, Searches) and benchmark.searches):
        raise ConfigError(
            f"search.conn_id = {search.conn_id}: the tools of this benchmark do not search; leave search.conn_id out, "
            "or let a tool of its adapter ask Workspace.search and set searches = True there, as benchmarks/sealqa does"
        )
