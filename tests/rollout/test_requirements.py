from typing import Any

import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK as WITHOUT_TOOLS
from benchmarks.sealqa.adapter import BENCHMARK as SEARCHING
from benchmarks.searchqa.adapter import BENCHMARK as WITH_TOOLS
from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.rollout.requirements import check_requirements, check_search
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.tasks.task_group import task_of


def declared_with(**section: object) -> Benchmark:
    task = {"prompt": "x", "reference": "y", "score": {"by": "exact"}} | section
    section_read = task_of(task)
    assert section_read is not None
    return declared_benchmark(section_read)


FILES, PICTURES = declared_with(files=["path"]), declared_with(pictures=["path"])


@pytest.mark.parametrize(
    ("group", "benchmark", "words"),
    [
        ({"harness": "chat"}, FILES, r"model\.harness = 'chat': .*task\.files"),
        ({"harness": "tools", "max_turns": 2}, declared_with(), "no tools"),
        ({"harness": "tools", "max_turns": 5}, WITHOUT_TOOLS, "no tools"),
        ({"harness": "tools"}, WITH_TOOLS, r"model\.max_turns = 1"),
    ],
)
def test_a_harness_that_a_benchmark_cannot_have(group: dict[str, Any], benchmark: Benchmark, words: str):
    with pytest.raises(ConfigError, match=words):
        check_requirements(ModelGroup(**group), benchmark)


@pytest.mark.parametrize("harness", HARNESSES)
def test_files_need_an_agent_and_pictures_and_other_items_none(harness: HarnessName):
    group = ModelGroup(harness=harness, max_turns=2)
    check_requirements(group, PICTURES)
    check_requirements(group, FILES if harness != "chat" else WITHOUT_TOOLS)
    check_requirements(group, WITHOUT_TOOLS if harness != "tools" else WITH_TOOLS)


def test_a_search_needs_a_benchmark_that_searches():
    with pytest.raises(ConfigError, match="the tools of this benchmark do not search"):
        check_search(SearchGroup(conn_id="skillopt_search"), WITH_TOOLS)
    check_search(SearchGroup(conn_id="skillopt_search"), SEARCHING)
    check_search(SearchGroup(), WITH_TOOLS)
