import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK as WITHOUT_TOOLS
from benchmarks.sealqa.adapter import BENCHMARK as SEARCHING
from benchmarks.searchqa.adapter import BENCHMARK as WITH_TOOLS
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.declared_task import declared
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.resource_groups import ModelGroup
from skillopt_airflow.core.search_group import SearchGroup
from skillopt_airflow.rollout.requirements import check_requirements, check_search


def test_the_tools_harness_needs_tools():
    with pytest.raises(ConfigError, match="no tools; use harness chat"):
        check_requirements(ModelGroup(harness="tools", max_turns=5), WITHOUT_TOOLS)


def declared_with(**section: object) -> Benchmark:
    task = {"prompt": "x", "reference": "y", "score": {"by": "exact"}} | section
    section_read = TrainConfig.from_layers({"task": task}).task
    assert section_read is not None
    return declared(section_read)


def test_files_need_an_agent():
    with pytest.raises(ConfigError, match=r"model\.harness = 'chat': .*task\.files.* to tools or codex or claude_code"):
        check_requirements(ModelGroup(), declared_with(files=["path"]))
    for harness in ("tools", "codex", "claude_code"):
        check_requirements(ModelGroup(harness=harness, max_turns=2), declared_with(files=["path"]))
    with pytest.raises(ConfigError, match=r"no tools; use harness chat .*, or its section task the key files"):
        check_requirements(ModelGroup(harness="tools", max_turns=2), declared_with())


def test_pictures_need_no_agent():
    for harness in ("chat", "tools", "codex", "claude_code"):
        check_requirements(
            ModelGroup.model_validate({"harness": harness, "max_turns": 2}), declared_with(pictures=["path"])
        )


def test_the_tools_harness_needs_two_turns():
    with pytest.raises(ConfigError, match=r"model\.max_turns = 1: harness tools needs at least 2"):
        check_requirements(ModelGroup(harness="tools"), WITH_TOOLS)
    check_requirements(ModelGroup(harness="tools", max_turns=2), WITH_TOOLS)


@pytest.mark.parametrize("harness", ["chat", "codex", "claude_code"])
def test_the_others_need_nothing(harness: str):
    check_requirements(ModelGroup.model_validate({"harness": harness}), WITHOUT_TOOLS)


def test_a_search_needs_a_benchmark_that_searches():
    with pytest.raises(ConfigError, match="the tools of this benchmark do not search"):
        check_search(SearchGroup(conn_id="skillopt_search"), WITH_TOOLS)
    check_search(SearchGroup(conn_id="skillopt_search"), SEARCHING)
    check_search(SearchGroup(), WITH_TOOLS)
