"""Checks before a run that the benchmark and the settings fit the harness."""

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.tasks.declared_task import DeclaredFilesTask
from skillopt_airflow.tasks.protocols import Benchmark, JudgesRepository, OffersTools, PlaysSession, Searches


def require_tools(benchmark: Benchmark) -> OffersTools:
    """Return the benchmark, or raise ConfigError if it has no tools."""
    if not isinstance(benchmark, OffersTools):
        others = " or ".join(name for name, harness in HARNESSES.items() if not harness.needs_tools)
        raise ConfigError(
            f"model.harness = 'tools': this benchmark has no tools; use harness {others}, add the methods task and "
            "tools to its adapter (OffersTools in include/skillopt_airflow/tasks/protocols.py), or add the key files "
            "to its section task"
        )
    return benchmark


def check_tools(benchmark: Benchmark) -> None:
    """Raise ConfigError if the harness tools can't run the benchmark: it has neither tools nor sessions."""
    if not isinstance(benchmark, PlaysSession):
        require_tools(benchmark)


def check_requirements(model: ModelGroup, benchmark: Benchmark) -> None:
    """Raise ConfigError if the harness can't run the benchmark's items."""
    harness = HARNESSES[model.harness]
    is_agent = harness.needs_tools or harness.is_cli
    needs_agent = ""
    if isinstance(benchmark, DeclaredFilesTask) and benchmark.needs_agent:
        needs_agent = "the items have files (task.files), which only an agent can read"
    elif isinstance(benchmark, JudgesRepository):
        needs_agent = "the items are repositories, in which only an agent can work"
    if needs_agent and not is_agent:
        agents = " or ".join(name for name, one in HARNESSES.items() if one.needs_tools or one.is_cli)
        raise ConfigError(f"model.harness = {model.harness!r}: {needs_agent}. Set model.harness to {agents}")
    if isinstance(benchmark, PlaysSession) and harness.is_cli:
        others = " or ".join(name for name, one in HARNESSES.items() if not one.is_cli)
        raise ConfigError(
            f"model.harness = {model.harness!r}: the items are worlds, and an agent that runs code could read the goal "
            f"from their process. Set model.harness to {others}"
        )
    if not harness.needs_tools:
        return
    check_tools(benchmark)
    if model.max_turns < 2:
        raise ConfigError(
            f"model.max_turns = {model.max_turns}: harness tools needs at least 2, to call a tool and to answer. Set "
            "it to 10, for example"
        )


def check_search(search: SearchGroup, benchmark: Benchmark) -> None:
    """Raise ConfigError if a search is configured and the benchmark doesn't use it."""
    if search.conn_id is not None and not (isinstance(benchmark, Searches) and benchmark.searches):
        raise ConfigError(
            f"search.conn_id = {search.conn_id}: the tools of this benchmark do not search. Remove search.conn_id, or "
            "call Workspace.search in a tool of its adapter and set searches = True, as in benchmarks/sealqa"
        )
