import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK as WITHOUT_TOOLS
from benchmarks.searchqa.adapter import BENCHMARK as WITH_TOOLS
from skillopt_airflow.core.config import ModelGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.rollout.requirements import check_requirements


def test_the_tools_harness_needs_tools():
    with pytest.raises(ConfigError, match="no tools; use harness chat"):
        check_requirements(ModelGroup(harness="tools", max_turns=5), WITHOUT_TOOLS)


def test_the_tools_harness_needs_two_turns():
    with pytest.raises(ConfigError, match=r"model\.max_turns = 1: harness tools needs at least 2"):
        check_requirements(ModelGroup(harness="tools"), WITH_TOOLS)
    check_requirements(ModelGroup(harness="tools", max_turns=2), WITH_TOOLS)


@pytest.mark.parametrize("harness", ["chat", "codex", "claude_code"])
def test_the_others_need_nothing(harness: str):
    check_requirements(ModelGroup.model_validate({"harness": harness}), WITHOUT_TOOLS)
