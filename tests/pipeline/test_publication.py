"""The tasks that publish and roll back, called as functions before anything is measured."""

import pytest

from include.core.config import PublishingGroup, TrainConfig
from include.core.errors import ConfigError
from include.pipeline import publishing
from include.training import publishing as training_publishing
from include.training.run import RunRef, TrainingRun
from tests.training.in_process import Training

FORM = {path: knob.value for path, knob in publishing.publish_form(TrainConfig()).items()}


@pytest.fixture
def run() -> TrainingRun:
    """Settled under rules of its own."""
    training = Training.of(publishing__draws=3, publishing__gate_policy="paired_se")
    training.task("prepare", training._prepare)
    return training.run


def test_a_training_publishes_under_the_rules_that_it_settled(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled: list[PublishingGroup] = []
    monkeypatch.setattr(publishing, "open_run", lambda ref: run)
    monkeypatch.setattr(publishing, "_artifacts", lambda run: run.store)
    monkeypatch.setattr(
        training_publishing, "plan_publication", lambda run, artifacts, name, rules: ruled.append(rules)
    )
    # The form of a benchmark.yaml that was edited meanwhile, with more epochs than the run has room for.
    edited = {"train.num_epochs": 50, "publishing.draws": 1, "publishing.approval": True, "overrides": {}}
    monkeypatch.setattr(publishing, "get_current_context", lambda: {"run_id": "manual__a", "params": edited})
    publishing.plan_publication.function({})
    assert ruled == [run.record.config.publishing]
    assert ruled[0].draws == 3


def test_a_finished_run_is_published_under_the_rules_of_the_form(run: TrainingRun) -> None:
    asked = FORM | {"publishing.draws": 2, "publishing.gate_policy": "mcnemar"}
    asked["overrides"] = {"publishing": {"approval": True}, "budget.max_calls": 9, "sandbox.memory": "1g"}
    rules = publishing.publishing_rules(run, asked)
    assert rules == {"publishing.draws": 2, "publishing.gate_policy": "mcnemar", "publishing.approval": True}
    late = TrainingRun(RunRef.model_validate(run.ref.model_dump() | {"overrides": rules}), run.store).config
    assert late.publishing == PublishingGroup(draws=2, approval=True)
    assert late.train == run.config.train


def test_rules_that_cannot_be(run: TrainingRun) -> None:
    with pytest.raises(ConfigError, match=r"publishing\.approval_hours is fixed when the DAG is parsed"):
        publishing.publishing_rules(run, FORM | {"overrides": {"publishing.approval_hours": 2}})
    with pytest.raises(ConfigError, match=r"publishing\.draw: no such key"):
        publishing.publishing_rules(run, FORM | {"overrides": {"publishing.draw": 2}})
