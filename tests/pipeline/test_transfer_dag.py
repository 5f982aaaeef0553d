"""What the first task of a matrix makes of its form."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.pipeline import transfer_dag, triggered
from skillopt_airflow.training import transfer_plan
from skillopt_airflow.training.run import TrainingRun
from tests.training.in_process import InProcessConnections
from tests.training.served_training import connect


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[TrainConfig]:
    """The configurations that come to be planned, of a benchmark whose evaluations are batch jobs."""
    folder = tmp_path / "batched"
    folder.mkdir()
    task = {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}}
    model = {"batch": True, "target": "openai:gpt-5"}
    (folder / "benchmark.yaml").write_text(json.dumps({"task": task, "data": {"uri": "x.json"}, "model": model}))
    monkeypatch.setenv(LIST_VARIABLE, str(folder))
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", f"the-{role}")
    monkeypatch.setattr(triggered, "open_run", lambda ref: TrainingRun(ref, InProcessConnections()))
    found: list[TrainConfig] = []
    monkeypatch.setattr(transfer_plan, "prepare_transfer", lambda run, config, *_: found.append(config))
    return found


def prepare(monkeypatch: pytest.MonkeyPatch, overrides: dict[str, Any]) -> None:
    form = {name: param.value for name, param in transfer_dag.form(TrainConfig()).items()} | {"overrides": overrides}
    context = {
        "dag": SimpleNamespace(params=form),
        "dag_run": SimpleNamespace(conf={}, run_id="matrix"),
        "params": form,
        "ti": SimpleNamespace(xcom_push=lambda *_: None),
    }
    monkeypatch.setattr(transfer_dag, "get_current_context", lambda: context)
    transfer_dag.prepare.function("batched")


# Neither several turns, nor thinking, nor a server without a batch API can be a batch job.
@pytest.mark.parametrize(
    "overrides", [{"model.batch": True}, {"model.max_turns": 6}, {"model.target": "openai-chat:here"}]
)
def test_what_batch_jobs_cannot_do_is_compared_in_containers(
    planned: list[TrainConfig], monkeypatch: pytest.MonkeyPatch, overrides: dict[str, Any]
) -> None:
    prepare(monkeypatch, overrides)
    assert [config.model.batch for config in planned] == [False]
