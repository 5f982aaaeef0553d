"""The first and the last task of an evaluation."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline import evaluate_dag
from skillopt_airflow.pipeline.tasks import triggered
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.training.in_process import InProcessConnections
from tests.training.matrix_training import BETTER, TARGET, MatrixTraining
from tests.training.served_training import connect

ITEMS = [{"id": f"{place}", "q": f"question {place}", "a": "x"} for place in range(40)]


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> InProcessConnections:
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", "stand-in-target")
    made = InProcessConnections()
    for module in (triggered, evaluate_dag):
        monkeypatch.setattr(module, "open_run", lambda ref: TrainingRun(RunRef.model_validate(ref), made))
    return made


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A benchmark whose evaluations are batch jobs."""
    folder = tmp_path / "batched"
    folder.mkdir()
    (folder / "x.json").write_text(json.dumps(ITEMS))
    (folder / "initial.md").write_text("# Seed\n")
    task = {"prompt": "{{ q }}", "reference": "a", "id": "id", "score": {"by": "exact"}}
    model = {"batch": True, "target": "openai:gpt-5"}
    (folder / "benchmark.yaml").write_text(json.dumps({"task": task, "data": {"uri": "x.json"}, "model": model}))
    monkeypatch.setenv(LIST_VARIABLE, str(folder))
    return "batched"


class Evaluation:
    """A run of the DAG, task by task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, benchmark: str = "searchqa", **asked: Any) -> None:
        form = {name: param.value for name, param in evaluate_dag.form(TrainConfig()).items()} | asked
        self.pushed: dict[str, Any] = {}
        self.benchmark = benchmark
        context = {
            "dag": SimpleNamespace(params=form),
            "dag_run": SimpleNamespace(conf={}, run_id="matrix"),
            "params": form,
            "ti": SimpleNamespace(xcom_push=self.pushed.__setitem__),
        }
        monkeypatch.setattr(evaluate_dag, "get_current_context", lambda: context)

    def prepare(self) -> list[Any]:
        work: list[Any] = evaluate_dag.prepare.function(self.benchmark)
        return work

    def conclude(self) -> JsonObject:
        found: JsonObject = evaluate_dag.conclude.function(self.pushed["runs"], self.pushed["skills"])
        return found


def test_each_cell_is_a_batch_job_where_a_benchmark_has_them(
    monkeypatch: pytest.MonkeyPatch, connections: InProcessConnections, batched: str
) -> None:
    targets = ["openai:gpt-5", "openai:gpt-5-mini"]
    jobs = Evaluation(monkeypatch, batched, skills=["seed"], targets=targets).prepare()
    runs = [TrainingRun(RunRef.model_validate(chunk["run"]), connections) for [chunk] in jobs]
    assert [run.config.model.target for run in runs] == targets
    with pytest.raises(AirflowFailException, match=r"batch sends single answers: it needs harness chat"):
        Evaluation(monkeypatch, batched, skills=["seed"], harnesses=["tools"]).prepare()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"fail_if_not_better": True}, "fail_if_not_better = true: no policy"),
        ({"policy": "strict", "skills": ["seed", "seed"]}, "policy = strict: there is nothing to compare"),
    ],
)
def test_a_verdict_needs_a_policy_and_a_second_skill(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        Evaluation(monkeypatch, **asked).prepare()


@pytest.fixture
def played(connections: InProcessConnections) -> MatrixTraining:
    return MatrixTraining(TrainConfig(), name=scoring_name("matrix"), store=connections.store)


@pytest.mark.parametrize(("skills", "fails"), [(["seed", BETTER], False), ([BETTER, "seed"], True)])
def test_a_run_fails_unless_the_second_skill_is_better(
    monkeypatch: pytest.MonkeyPatch, played: MatrixTraining, skills: list[str], fails: bool
) -> None:
    overrides = {"evaluation.test_limit": 24}
    gate = {"skills": skills, "targets": [TARGET], "policy": "strict", "overrides": overrides}
    evaluation = Evaluation(monkeypatch, **gate, fail_if_not_better=True)
    played.run_containers(evaluation.prepare())
    if not fails:
        assert evaluation.conclude()["not_better"] == []
        return
    with pytest.raises(AirflowFailException, match=rf"not better than .*: seed \({TARGET}, chat, test\)"):
        evaluation.conclude()
    # It is told all the same.
    matrix = MatrixTable(played.store, MatrixKeys("", "searchqa")).read(scoring_name("matrix"))
    assert len(matrix.not_better) == 1
    evaluation = Evaluation(monkeypatch, **gate)
    played.run_containers(evaluation.prepare())
    assert evaluation.conclude()["not_better"] == [f"seed ({TARGET}, chat, test)"]
