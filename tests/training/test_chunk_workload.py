from types import SimpleNamespace

import pytest

from skillopt_airflow.core.config import StorageGroup, TrainConfig
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.pod import labels_of, workload_label
from skillopt_airflow.training import seed_and_final
from skillopt_airflow.training.run import RunRef, TrainingRun
from skillopt_airflow.training.workload import ChunkWorkload
from tests.training.in_process import Training


@pytest.mark.parametrize("runs_code", [False, True])
@pytest.mark.parametrize("harness", ["chat", "tools", "codex", "claude_code"])
def test_whatever_executes_a_models_words_gets_one_container_an_item(harness: str, runs_code: bool) -> None:
    config = TrainConfig.from_layers({"model": {"harness": harness}})
    run = SimpleNamespace(config=config, benchmark=SimpleNamespace(runs_code=runs_code))
    workload = ChunkWorkload.__new__(ChunkWorkload)
    object.__setattr__(workload, "run", run)

    assert workload.one_item_each is (runs_code or HARNESSES[harness].is_cli)


def test_equal_runs_of_installations_with_stores_of_their_own_do_not_remove_each_others_containers() -> None:
    training = Training.of()
    training.prepare()
    run = training.run
    (ref, *_) = seed_and_final.seed_plan(run)

    def named(**storage: str) -> dict[str, str]:
        same = RunRef(benchmark=run.ref.benchmark, run=run.ref.run, storage=StorageGroup(**storage))
        opened = TrainingRun(same, run.connections)
        opened.store.put_model(opened.keys.config, run.record)
        return identity(ChunkWorkload(opened, ref, "scheduled__2026-11-21T00:00:00+00:00").labels)

    one, again, other, below = named(), named(), named(bucket="other"), named(prefix="team/")
    assert one == again
    assert len({workload_label(each) for each in (one, other, below)}) == 3
    assert below["skillopt.store"] == "skillopt/team/"
    assert labels_of(below, 5.4)["skillopt/store"] == "skillopt-team"


@pytest.mark.parametrize(("draws", "wanted"), [(1, 0.9), (2, 0.95), (4, 0.975)])
def test_the_draws_of_an_evaluation_may_lack_together_what_one_may(draws: int, wanted: float) -> None:
    training = Training.of(evaluation__draws=draws, evaluation__min_coverage=0.9)
    training.prepare()
    found = [ChunkWorkload(training.run, ref, "run").wanted_coverage for ref in seed_and_final.seed_plan(training.run)]
    assert found == [pytest.approx(wanted)] * len(found) != []
