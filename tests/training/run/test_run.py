"""What a run says of itself without a training: which settings its rollouts are stored under."""

from typing import Any

import pytest

from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.in_process import Training


def prepared(benchmark: str, **options: Any) -> TrainingRun:
    training = Training.of(benchmark, evaluation__val_limit=None, evaluation__test_limit=None, **options)
    training.prepare()
    return training.run


def of(run: TrainingRun) -> str:
    return run.rollout_key(Split.VAL, SkillDocument("# Skill\n"), 0).settings_sha256


def settings_of(benchmark: str, **options: Any) -> str:
    return of(prepared(benchmark, **options))


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [{"sandbox__code_timeout": 5}, {"sandbox__memory": "1g"}], ids=str)
def test_the_limits_of_code_shape_rollouts_where_some_runs(limit: dict[str, Any]) -> None:
    assert settings_of("spreadsheetbench", **limit) != settings_of("spreadsheetbench")
    assert settings_of("searchqa", **limit) == settings_of("searchqa")
    # An agent's CLI runs code whatever the benchmark.
    cli = {"model__harness": "codex"}
    assert settings_of("searchqa", **limit, **cli) != settings_of("searchqa", **cli)
