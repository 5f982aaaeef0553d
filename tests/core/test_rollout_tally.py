import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.rollout_tally import RolloutTally
from skillopt_airflow.core.types import Status, Trajectory


def tally(*statuses: Status, planned: int | None = None) -> RolloutTally:
    rows = [Trajectory(item_id=str(index), status=status) for index, status in enumerate(statuses)]
    return RolloutTally.of(rows, len(rows) if planned is None else planned)


@given(st.lists(st.sampled_from(Status)), st.integers(0, 3))
def test_every_rollout_is_counted_once(statuses: list[Status], missing: int) -> None:
    found = tally(*statuses, planned=len(statuses) + missing)
    assert found.scored + sum(found.failures.values()) == len(statuses)
    assert found.truncated == statuses.count(Status.TRUNCATED)
    assert found.empty == statuses.count(Status.EMPTY)
    assert (found.reason is None) == (not found.failures)
    assert 0 <= found.coverage <= 1


def test_without_rollouts_nothing_is_missing() -> None:
    assert (tally().coverage, tally().cuts, str(tally())) == (1.0, "", "0 of 0 rollouts have a score")


@pytest.mark.parametrize(("status", "said"), [(Status.TRUNCATED, "max_tokens"), (Status.EMPTY, "--reasoning-parser")])
@pytest.mark.parametrize(("odd", "whole", "warned"), [(0, 0, False), (1, 19, False), (2, 37, True), (1, 0, True)])
def test_more_than_one_cut_or_empty_answer_in_twenty_is_a_warning(
    status: Status, said: str, odd: int, whole: int, warned: bool
) -> None:
    found = tally(*[status] * odd, *[Status.OK] * whole, Status.TIMEOUT)
    assert (said in found.cuts) is warned
    assert found.cuts.startswith(f"{odd} of {odd + whole} answers") is warned


def test_cut_and_empty_answers_have_a_warning_each() -> None:
    both = tally(Status.EMPTY, Status.TRUNCATED, Status.OK).cuts
    assert both.startswith("1 of 3 answers (33%) were cut off")
    assert "; 1 of 3 answers (33%) were empty" in both
