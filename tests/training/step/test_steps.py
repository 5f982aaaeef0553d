import math
from typing import Any

import pytest

from local.standin.economy import HARMFUL
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import TrainGroup
from skillopt_airflow.core.run.timeline import timeline
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.rollouts.rollout_plan import BATCH_AHEAD, RolloutPlan
from skillopt_airflow.training.step import steps
from skillopt_airflow.training.step.steps import first_speculation, may_precede
from tests.training.in_process import Training


@pytest.mark.parametrize(("wanted", "first"), [(True, 1), ("auto", 3), (False, math.inf)])
def test_the_first_step_that_may_speculate(wanted: bool | str, first: float) -> None:
    assert first_speculation(TrainGroup.model_validate({"speculative_rollout": wanted})) == first


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("calls", "speculates"), [(None, True), (100_000, False)])
def test_speculation_begins_by_itself_after_two_rejections_without_a_budget(
    calls: int | None, speculates: bool
) -> None:
    plain, ahead = (
        Training.of(
            train__num_epochs=1,
            train__steps_per_epoch=7,
            train__speculative_rollout=wanted,
            evaluation__gate_policy="exact_paired",
            evaluation__gate_alpha=1e-5,
            budget__max_calls=calls,
        )
        for wanted in (False, "auto")
    )
    assert plain() == ahead()
    made = history_of(ahead.run).steps
    assert len(made) > 3
    assert not any(step.action.accepted for step in made)
    # The batches of steps 4 to 7: step 3 is the first with two rejections before it.
    assert ahead.rollouts["speculate"] == (4 * 8 if speculates else 0)
    assert plain.rollouts["rollout"] - ahead.rollouts["rollout"] == ahead.rollouts["speculate"]
    assert history_of(ahead.run).rollouts.wasted == 0


def test_without_a_gate_no_skill_stays_as_it_is() -> None:
    made = [
        [may_precede(moment, config) for moment in timeline(config, 2)]
        for config in (TrainConfig.from_layers({"evaluation": {"use_gate": gated}}) for gated in (True, False))
    ]
    assert any(made[0])
    assert not any(made[1])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("tries", [1, 2])
def test_the_batch_behind_a_slow_update_is_rolled_out_beside_it(tries: int) -> None:
    small = {"train__num_epochs": 3, "train__steps_per_epoch": 1, "train__samples": tries}
    behind, ahead = (Training.of(**small, train__speculative_rollout=wanted) for wanted in (False, True))
    assert behind() == ahead()
    run = ahead.run
    slow_update = next(moment for moment in run.timeline if moment.kind == "slow_update")
    chunks = run.store.get_model(run.keys.moment(slow_update).plan(BATCH_AHEAD), RolloutPlan).chunks
    following = run.timeline[run.timeline.index(slow_update) + 1]
    batch = sorted(item.id for part in run.slices(following) for item in part)
    assert [sorted(chunk.item_ids) for chunk in chunks] == [batch] * tries
    # The last slow update has no step behind it.
    counts, saved = history_of(run).rollouts, behind.rollouts["rollout"] - ahead.rollouts["rollout"]
    assert counts.speculated == ahead.rollouts["speculate"] > 0
    assert counts.wasted == counts.speculated - saved


def speculating(reflects: str, notes: list[str] | None = None, **knobs: Any) -> Training:
    """A training of two steps whose analysts only propose harm, which rolls out the second batch ahead."""

    def reply(stage: str, prompt: str, tool: str) -> Any:
        edit = {"op": "append", "content": f"- {HARMFUL[0]} {len(prompt)}", "rationale": "r"}
        answer = {"failure_patterns": [], "edits": [edit]} | ({"notes": notes} if notes else {})
        return answer if stage == reflects else None

    steps = {"train__num_epochs": 1, "train__steps_per_epoch": 2, "train__speculative_rollout": True}
    return Training.of(reply=reply, preflight=False, **steps, **knobs)


@pytest.mark.nightly
@pytest.mark.slow
def test_no_batch_is_rolled_out_ahead_of_notes_that_enter_the_skill() -> None:
    training = speculating("reflect_skill_aware", notes=["Mind it."], optimizer__use_skill_aware_reflection=True)
    training()
    assert training.actions() == ["reject", "reject"]
    assert training.rollouts["rollout"] + training.rollouts["speculate"] == 16
    assert training.rollouts["speculate"] == 0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("status", [None, Status.TIMEOUT])
def test_a_batch_that_was_rolled_out_ahead_takes_no_task(status: Status | None) -> None:
    training = speculating("reflect")
    training.fail = lambda stage, item_id: status if stage == "speculate" else None
    training()
    assert set(training.actions()) <= {"reject", "underpowered"}
    chunks = training.done["steps/step_0002/plan"]
    assert bool(chunks) is (status is not None)
    assert training.rollouts["rollout"] == (8 if status is None else 16)
    # A gate that is cleared plans it once more; Airflow would not make again a task that it dropped.
    assert steps.rollout(training.run, training.run.timeline[2])
