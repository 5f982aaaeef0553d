"""A candidate that is worse on its step's own batch goes no further, and everything that reads of it says so."""

from typing import Any

import pytest

from local.standin.economy import HARMFUL
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.run_history import MomentHistory
from skillopt_airflow.core.screening import Screening
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.training import steps
from skillopt_airflow.training.candidate import gate
from skillopt_airflow.training.epoch_end import epoch_steps
from skillopt_airflow.training.history import history_of
from skillopt_airflow.training.reporting import view_of
from skillopt_airflow.training.rollout_plan import RolloutPlan
from tests.training.in_process import InterruptedRun, Training, step_keys

pytestmark = pytest.mark.slow

BATCH, VAL = 8, 24
SMALL = {"evaluation__screen": "batch", "train__steps_per_epoch": 1, "train__num_epochs": 1, "train__preflight": False}


def misled(stage: str, prompt: str, tool: str) -> Any:
    """An optimizer that adds all that spoils items which were right before."""
    if stage != "reflect":
        return None
    harm = "\n".join(f"- {sentence}" for sentence in HARMFUL)
    return {"failure_patterns": [], "edits": [{"op": "append", "anchor": "", "content": harm, "rationale": "r"}]}


@pytest.fixture(scope="module")
def screened_out() -> Training:
    """A run of one step whose candidate answers none of its batch."""
    training = Training.of(reply=misled, **SMALL)
    training()
    return training


def step(training: Training) -> tuple[Moment, MomentHistory]:
    [row] = history_of(training.run).steps
    return training.run.timeline[1], row


def test_a_screened_candidate_is_a_rejection_with_its_reason(screened_out: Training) -> None:
    moment, row = step(screened_out)
    keys = screened_out.run.keys.moment(moment)
    screening = screened_out.store.get_model(keys.screen, Screening)
    assert row.action == "reject"
    assert row.decision.reason.startswith(f"screened out: worse on the step's batch of {BATCH} items, current ")
    assert row.decision.screen == screening
    assert screened_out.store.get_model(keys.gate, GateDecision) == row.decision
    assert (screened_out.rollouts["screen"], screened_out.rollouts["evaluate"]) == (BATCH, 0)


def test_the_optimizer_is_told_what_was_measured_of_both(screened_out: Training) -> None:
    moment, row = step(screened_out)
    batch = row.decision.screened_out
    assert batch is not None
    [entry] = screened_out.run.state(moment).buffer.entries
    assert (entry.score_before, entry.score_after) == (batch.other_score, batch.score)
    assert entry.rejected_edits
    [shown] = epoch_steps(screened_out.run, 1)
    assert (shown.action, shown.score_before, shown.score_after) == ("reject", batch.other_score, batch.score)


def test_its_rollouts_on_the_selection_split_count_as_cancelled(screened_out: Training) -> None:
    _, row = step(screened_out)
    assert (row.cancelled, row.candidate) == (VAL, None)
    counts = history_of(screened_out.run).rollouts
    assert counts.ran == sum(screened_out.rollouts.values())
    assert (counts.planned, counts.cancelled, counts.reused) == (counts.ran + VAL, VAL, 0)
    [outcome] = [one for one in history_of(screened_out.run).outcomes if one.stage == "screen"]
    assert outcome.scored == BATCH


def test_what_another_run_knows_of_it_changes_nothing(screened_out: Training) -> None:
    """Its rollouts on the selection split are in the store, but this run did not ask for them."""
    full = Training(screened_out.config, name="full", store=screened_out.store, reply=misled)
    full.config = full.config.model_copy(
        update={"evaluation": full.config.evaluation.model_copy(update={"screen": "none", "early_reject": False})}
    )
    full()
    assert full.rollouts == {"evaluate": VAL}
    again = Training(screened_out.config, name="again", store=screened_out.store, reply=misled)
    again()
    assert sum(again.rollouts.values()) == 0
    (_, row), (_, before) = step(again), step(screened_out)
    assert row.decision == before.decision
    assert (row.cancelled, row.candidate) == (VAL, None)
    counts = history_of(again.run).rollouts
    assert (counts.ran, counts.reused, counts.cancelled) == (0, counts.planned - VAL, VAL)
    [shown] = view_of(again.run, history_of(again.run)).moments
    assert shown.candidate is None


def test_a_screen_that_could_not_be_measured_decides_nothing() -> None:
    training = Training.of(reply=misled, **SMALL)
    training.fail = lambda stage, item_id: Status.TIMEOUT if stage == "screen" else None
    training()
    _, row = step(training)
    assert row.decision.screen is not None
    assert row.decision.screen.against_current.pairs == 0
    assert row.decision.screen.passed
    assert "not better than current" in row.decision.reason
    assert training.rollouts["evaluate"] > 0


@pytest.mark.parametrize(("coverage", "ran"), [(0.5, BATCH - 2), (0.95, 0)])
def test_only_items_with_a_score_under_the_current_skill_are_screened(coverage: float, ran: int) -> None:
    training = Training.of(reply=misled, evaluation__min_coverage=coverage, **SMALL)
    failed: set[str] = set()

    def fail(stage: str, item_id: str) -> Status | None:
        if stage == "rollout" and (item_id in failed or len(failed) < 2):
            failed.add(item_id)
            return Status.TIMEOUT
        return None

    training.fail = fail
    training()
    assert training.rollouts["screen"] == ran
    run, moment = training.run, training.run.timeline[1]
    plan = run.store.get_model(run.keys.moment(moment).plan("screen"), RolloutPlan)
    assert {chunk.split for chunk in plan.chunks} <= {Split.TRAIN}
    assert not failed & {item_id for chunk in plan.chunks for item_id in chunk.item_ids}


@pytest.mark.parametrize("knobs", [{"evaluation__use_gate": False}, {"evaluation__screen": "none"}])
def test_where_nothing_screens_a_graph_with_its_tasks_goes_on(knobs: dict[str, Any]) -> None:
    training = Training.of(reply=misled, **SMALL | knobs)
    training.interrupt_after = "steps/step_0001/rollout"
    with pytest.raises(InterruptedRun):
        training()
    run, moment = training.run, training.run.timeline[1]
    assert steps.update(run, moment, screened=True) == []
    training.run_containers(steps.screen(run, moment))
    gate(run, moment)
    decision = run.store.get_model(run.keys.moment(moment).gate, GateDecision)
    assert decision.screen is None
    assert training.rollouts["evaluate"] > 0
    assert not run.store.exists(run.keys.moment(moment).screen)


def test_a_candidate_that_equals_the_skill_is_not_screened() -> None:
    def idle(stage: str, prompt: str, tool: str) -> Any:
        return {"failure_patterns": [], "edits": []} if stage == "reflect" else None

    training = Training.of(reply=idle, **SMALL)
    training()
    _, row = step(training)
    assert row.decision.reason.startswith("equal to the current skill")
    assert training.rollouts["screen"] == training.rollouts["evaluate"] == 0


def test_a_screen_of_another_candidate_does_not_count(screened_out: Training) -> None:
    training = Training(screened_out.config, name="changed", store=screened_out.store, reply=misled)
    training()
    run, moment = training.run, training.run.timeline[1]
    keys = run.keys.moment(moment)
    run.store.put_text(keys.candidate_skill, run.skill(0).text + "\n- Another rule.\n")
    gate(run, moment)
    decision = run.store.get_model(keys.gate, GateDecision)
    assert (decision.action, decision.screen) == ("indecisive", None)


@pytest.mark.nightly
def test_the_next_batch_is_rolled_out_ahead_of_the_screen() -> None:
    kept = {"train__speculative_rollout": True, "train__steps_per_epoch": 2, "optimizer__use_slow_update": False}
    out, on = (Training.of(reply=reply, **SMALL | kept) for reply in (misled, None))
    out(), on()
    first, second = (history_of(training.run).steps[0].decision for training in (out, on))
    assert (first.screened_out is None, second.action.accepted) == (False, True)
    for training, wasted in ((out, 0), (on, BATCH)):
        plans = [step_keys(training.run.keys, 1).plan(name) for name in ("ahead", "screen")]
        stages = [chunk.stage for plan in plans for chunk in training.store.get_model(plan, RolloutPlan).chunks]
        assert stages == ["speculate", "screen"]
        counts = history_of(training.run).rollouts
        assert (counts.speculated, counts.wasted) == (training.rollouts["speculate"], wasted) == (BATCH, wasted)
        assert training.rollouts["rollout"] == BATCH + wasted
