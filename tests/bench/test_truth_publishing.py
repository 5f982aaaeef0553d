"""What publishing promises of skills that were chosen on a selection split, by few simulated searches."""

from statistics import mean

import pytest

from bench.truth_publishing import ANSWERS, searched

CHAMPIONS = 60


@pytest.mark.nightly
@pytest.mark.parametrize("answers", [name for name, world in ANSWERS.items() if not world.effect])
def test_ten_tries_with_skills_that_are_no_better_publish_as_rarely_as_promised(answers: str) -> None:
    found = searched(answers, 40, 1, "40 steps", CHAMPIONS)
    # 5 %, and three standard errors.
    assert mean(any(one.published for one in tried) for tried in found) <= 0.05 + 3 * 0.028
    errors = [one.too_high for tried in found for one in tried]
    flattered = [one.too_high_on_val for tried in found for one in tried]
    assert abs(mean(errors)) < 0.04 < 0.08 < mean(flattered)


@pytest.mark.nightly
def test_the_items_that_a_skill_was_chosen_by_would_publish_it() -> None:
    found = searched("deterministic target", 40, 1, "40 steps", 40)
    assert mean(tried[0].on_val for tried in found if tried) > 0.5


@pytest.mark.nightly
def test_a_gain_is_published() -> None:
    found = searched("coins, edits help or harm", 200, 3, "40 steps", 10)
    assert mean(tried[0].published for tried in found if tried) > 0.3
    assert all(one.better for tried in found for one in tried if one.published)
