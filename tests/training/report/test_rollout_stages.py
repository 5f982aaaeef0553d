"""What a training has rolled out, by its moments and stages."""

import pytest

from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.report.reporting import (
    find_stage,
    label_of,
    planned_rollouts,
    reached_moments,
    rival_before,
    skills_of,
    stages_of,
)
from skillopt_airflow.training.rollouts.rollout_plan import store_plan
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> TrainingRun:
    training = Training.of(
        train__num_epochs=2,
        train__steps_per_epoch=1,
        preflight=False,
        evaluation__val_limit=12,
        evaluation__test_limit=6,
        publishing__gate_policy="strict",
    )
    training()
    return training.run


@pytest.mark.nightly
def test_every_moment_of_a_finished_run_has_its_stages(trained: TrainingRun) -> None:
    found = {label_of(moment): [*stages_of(trained, moment)] for moment in reached_moments(trained)}
    assert found == {
        "Beginning": ["seed", "test"],
        "Step 1": ["evaluate", "rollout"],
        "Slow update, epoch 1": ["evaluate", "longitudinal"],
        "Step 2": ["evaluate", "rollout"],
        "Slow update, epoch 2": ["evaluate", "longitudinal"],
        "End": ["final", "test"],
    }


def test_a_stage_plans_items_under_skills(trained: TrainingRun) -> None:
    step = trained.timeline[1]
    [batch] = planned_rollouts(trained, step, "rollout").values()
    assert batch.item_ids == tuple(ref.id for part in trained.slices(step) for ref in part)
    assert (batch.skills, batch.draws) == (("skills/skill_v0000.md",), (0,))
    evaluation = planned_rollouts(trained, step, "evaluate")
    # What is rolled out ahead for the next step is no part of it.
    assert list(evaluation) == [Split.VAL]
    assert set(evaluation[Split.VAL].item_ids) == {ref.id for ref in trained.item_refs(Split.VAL)}
    names = skills_of(trained, step, "evaluate", evaluation[Split.VAL].skills)
    labels = [one.label for one in names]
    assert labels[0] == "candidate of step 1"
    assert "seed" in labels
    assert all(trained.document(f"{trained.keys.folder}{one.name}").text for one in names)


def test_the_newest_stage_with_rollouts_is_found(trained: TrainingRun) -> None:
    moments = reached_moments(trained)
    newest = find_stage(trained, moments, "", "")
    assert (newest.moment.kind, newest.name, list(newest.splits)) == ("final", "test", [Split.TEST])
    named = find_stage(trained, moments, "steps/step_0001", "rollout")
    assert (named.moment.name, named.name) == ("steps/step_0001", "rollout")
    unknown = find_stage(trained, moments, "steps/step_0001", "x")
    assert (unknown.moment.name, unknown.name) == ("steps/step_0001", "evaluate")
    assert find_stage(trained, moments, "x", "x") == newest
    # What a candidate has to beat.
    beaten = [rival_before(trained, moment) for moment in trained.timeline[:2]]
    assert beaten == [None, "skills/skill_v0000.md"]


def test_a_run_that_has_just_begun() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__val_limit=12)
    training.prepare()
    run = training.run
    assert reached_moments(run) == run.timeline[:1]
    found = find_stage(run, reached_moments(run), "", "")
    assert (found.name, len(found.splits[Split.VAL].item_ids)) == ("seed", 12)
    assert [one.label for one in skills_of(run, found.moment, "seed", found.splits[Split.VAL].skills)] == ["seed"]
    store_plan(run, run.timeline[0], "seed", [])
    run.store.delete(run.keys.moment(run.timeline[0]).plan("seed"))
    assert find_stage(run, reached_moments(run), "", "").name == ""
