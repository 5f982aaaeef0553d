import pytest

from skillopt_airflow.core.budget import spent
from skillopt_airflow.training.spending import left_of_run, why_stop
from tests.training.in_process import Training

PRICES = {
    "openai-chat:stand-in-target": {"input": 1.0, "output": 4.0},
    "openai-chat:stand-in-optimizer": {"input": 10.0, "output": 40.0},
}


@pytest.fixture(scope="module")
def training() -> Training:
    """A run that has paid a good part of its budget."""
    limits = {"budget__max_calls": 10_000, "budget__max_tokens": 10_000_000, "budget__max_usd": 100.0}
    trained = Training.of(**limits, budget__prices=PRICES, train__num_epochs=1, evaluation__eval_test=False)
    trained()
    return trained


def test_a_run_has_left_what_no_call_of_target_and_optimizer_cost(training: Training) -> None:
    run = training.run
    rows = [row.call for row in run.usage.read(run.ref.benchmark, run.ref.run)]
    total = spent(rows, run.record.prices)
    assert {call.role for call in rows} == {"target", "optimizer"}
    left = left_of_run(run)
    assert (left.calls, left.tokens) == (10_000 - total.calls, 10_000_000 - total.tokens)
    assert total.usd is not None
    assert left.usd == pytest.approx(100.0 - total.usd)


@pytest.mark.nightly
def test_a_gate_that_is_decided_again_sees_nothing_of_what_was_spent_later() -> None:
    free = Training.of()
    free()
    total = sum(row.call.attempts for row in free.run.usage.read(free.run.ref.benchmark, free.run.ref.run))
    limited = Training.of(budget__max_calls=total)
    limited()
    run = limited.run
    assert run.timeline[-2].kind == "slow_update"
    assert [why_stop(run, moment) for moment in run.timeline[1:-2]] == [""] * 5
