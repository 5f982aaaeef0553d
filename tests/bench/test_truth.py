"""The simulations of bench/truth.py and bench/truth_publishing.py, with fewer trials."""

from statistics import mean

import pytest

from bench import tables, truth, truth_publishing
from bench.truth import OFTEN_A_LITTLE, TESTS, covered, found, rates
from bench.truth_publishing import ANSWERS, searched
from bench.truth_worlds import WORLDS


def most(trials: int) -> float:
    """Return the level, and three standard errors of so many trials."""
    return 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize(
    "world", ["coins", "mixed: any rate from 0 to 1", "deterministic target", "partial credit", "ten items a text"]
)
def test_candidates_that_change_nothing_are_accepted_as_rarely_as_promised(world: str, samples: int) -> None:
    for items, trials in ((17, 300), (60, 200)):
        shares = rates(world, items, samples, trials)
        print(items, world, samples, shares)
        assert shares["exact_paired"] <= most(trials)
        assert 0.3 <= shares["strict"] <= 0.6


@pytest.mark.nightly
def test_failed_rollouts_of_losses_publish_nothing() -> None:
    shares = rates("timeouts among losses", 40, 1, 500)
    print(shares)
    assert shares["strict"] > 0.5
    assert shares["exact_paired"] <= most(500)


def test_tests_of_means_see_what_signs_do_not() -> None:
    worse = found(OFTEN_A_LITTLE, 200, 1, 0.0, 60)
    print(worse)
    assert worse["signs alone"] > 0.3
    assert worse["exact_paired"] <= most(60)
    assert list(worse) == list(TESTS)


@pytest.mark.parametrize("samples", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_true_gains_are_found_as_often_as_by_their_signs(samples: int) -> None:
    shares = found("coins", 80, samples, 0.15, 100)
    print(shares)
    assert shares["exact_paired"] >= 2 / 3 * shares["signs alone"] > 0.3


@pytest.mark.parametrize(
    ("world", "items", "samples", "gain"),
    [
        ("coins", 17, 3, 0.1),
        ("all wrong", 17, 1, 0.2),
        ("deterministic target", 40, 3, 0.1),
        ("ten items a text", 200, 1, 0.1),
        ("nearly all right", 40, 3, 0.0),
    ],
)
def test_intervals_hold_the_truth(world: str, items: int, samples: int, gain: float) -> None:
    of_difference, _, of_score, _ = covered(world, items, samples, gain, 300)
    print(world, of_difference, of_score)
    # Four standard errors below 95 %.
    assert min(of_difference, of_score) >= 0.9


@pytest.mark.slow
@pytest.mark.nightly
def test_the_page_has_all_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    monkeypatch.setattr(truth, "TRIALS", dict.fromkeys(truth.TRIALS, 2))
    monkeypatch.setattr(truth_publishing, "TRIALS", {17: 2, 40: 2})
    truth.measure()
    page = (tables.RESULTS / "truth.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == 7
    assert all(f"| {world} |" in page for world in WORLDS)


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
