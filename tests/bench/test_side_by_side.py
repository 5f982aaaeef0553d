"""The simulated trainings with several candidates of a step: what is counted adds up."""

import pytest

from bench import screen, side_by_side
from bench.side_by_side import GOALS, HEADER, rows, trained
from bench.world_model import MANY_EDITS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

STEPS = 40


def test_one_proposal_is_the_training_of_the_other_tables() -> None:
    one, other = trained(3, 0.1, 1), screen.trained(3, 40, 0.1, "none", MANY_EDITS)
    assert (one.skill, one.best, one.calls, one.accepted) == (other.skill, other.best, other.calls, other.accepted)


def test_several_take_more_calls_and_say_when_they_reached_the_goal() -> None:
    one, four = trained(3, 0.0, 1), trained(3, 0.0, 4)
    assert one.steps == four.steps == STEPS
    assert four.calls > one.calls
    assert four.reached is not None
    assert four.reached.steps <= STEPS
    assert four.true_score >= GOALS[0.0]
    slow, fast = four.reached.seconds
    assert slow > fast > 0


def test_a_row_for_each_number_of_proposals() -> None:
    table = rows(0.1, [5])
    assert [line[2] for line in table] == [*side_by_side.PROPOSALS]
    assert all(len(line) == len(HEADER) for line in table)
