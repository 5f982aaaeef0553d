"""The simulated trainings: what is counted adds up, and a screen changes nothing but what it stops."""

import pytest

from bench.screen import TRAIN, VAL, Training, row, trained
from bench.world_model import FEW_EDITS, MANY_EDITS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

BATCH, STEPS = 80, 4 * 5


@pytest.fixture(scope="module")
def pair() -> tuple[Training, Training]:
    without, with_it = (trained(3, BATCH, 0.1, screen, MANY_EDITS) for screen in ("none", "batch"))
    return without, with_it


def test_a_training_without_a_screen_stops_nothing_and_learns(pair: tuple[Training, Training]) -> None:
    without, _ = pair
    assert (without.screened_out, without.lost) == (0, 0)
    assert 4 * TRAIN < without.calls <= 4 * TRAIN + STEPS * VAL
    assert without.accepted > 0
    assert without.true_score > Training(without.world, without.config).true_score


def test_a_screen_takes_a_batch_and_saves_selection_splits(pair: tuple[Training, Training]) -> None:
    _, with_it = pair
    assert 0 < with_it.screened_out < STEPS
    assert with_it.lost_better <= with_it.lost <= with_it.screened_out
    assert with_it.calls <= 2 * 4 * TRAIN + (STEPS - with_it.screened_out) * VAL


def test_equal_seeds_give_equal_rows() -> None:
    assert row(FEW_EDITS, BATCH, 0.1, [5]) == row(FEW_EDITS, BATCH, 0.1, [5])
    assert trained(5, BATCH, 0.1, "none", MANY_EDITS).calls != trained(6, BATCH, 0.1, "none", MANY_EDITS).calls
