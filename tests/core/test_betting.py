import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.truth import log_sign_evidence
from skillopt_airflow.core.betting import BETTORS, BOLD_SHARES, START, bet, highest_capital, log_evidence

DIFFERENCES = st.lists(st.floats(-1, 1), max_size=30)


def log_betting(differences: list[float]) -> float:
    return log_evidence(bet(differences))


def test_nothing_seen_is_no_evidence() -> None:
    assert log_betting([]) == log_betting([0.0] * 9) == log_evidence(START) == 0.0


@given(DIFFERENCES, DIFFERENCES)
def test_what_comes_later_follows_on_what_was_there(first: list[float], then: list[float]) -> None:
    assert log_evidence(bet(then, bet(first))) == pytest.approx(log_betting(first + then), abs=1e-9)


@given(st.lists(st.sampled_from([-1.0, -0.4, 0.0, 0.3, 1.0]), min_size=1, max_size=8), st.floats(-1, 1))
def test_a_fair_difference_leaves_the_expected_evidence_as_it_is(before: list[float], payoff: float) -> None:
    # A difference of mean 0 with two values; the evidence of each, weighted by its chance.
    up, down = max(abs(payoff), 0.1), -0.5
    chance = -down / (up - down)
    expected = chance * math.exp(log_betting([*before, up])) + (1 - chance) * math.exp(log_betting([*before, down]))
    assert expected == pytest.approx(math.exp(log_betting(before)))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (7, 0), (0, 7), (20, 5), (100, 80), (600, 400)])
def test_of_wins_and_losses_it_is_the_evidence_of_their_signs(wins: int, losses: int) -> None:
    found = log_betting([1.0] * wins + [-1.0] * losses)
    assert found == pytest.approx(log_sign_evidence(wins, losses), abs=0.02)


def test_a_mean_of_zero_is_found_rarely_however_it_is_made_up() -> None:
    # Nine items of ten gain a little, one loses all that: nine wins to one loss, and no gain.
    random, found, trials = Random(5), 0, 500
    for _ in range(trials):
        capitals, highest = START, 0.0
        for _ in range(20):
            capitals = bet([0.1 if random.random() < 0.9 else -0.9 for _ in range(20)], capitals)
            highest = max(highest, log_evidence(capitals))
        found += highest >= math.log(20)
    # At most 5 % ever reach 20, and three standard errors of 500 trials.
    assert found / trials <= 0.08


def test_a_gain_is_found() -> None:
    random = Random(6)
    assert log_betting([random.choice([-0.5, 0.0, 1.0]) for _ in range(200)]) > math.log(1000)


@given(DIFFERENCES)
def test_the_highest_capital_is_that_of_some_moment(differences: list[float]) -> None:
    moments = [
        math.fsum(math.prod(1 + share * difference for difference in differences[:end]) for share in BOLD_SHARES)
        / BETTORS
        for end in range(len(differences) + 1)
    ]
    assert highest_capital(differences, math.inf) == pytest.approx(max(moments))
    reached = next((capital for capital in moments if capital >= 3), max(moments))
    assert highest_capital(differences, 3) == pytest.approx(reached)


def test_who_gains_nothing_seldom_rises_high_at_any_moment() -> None:
    random, trials = Random(8), 2000
    differences = [[random.choice([0.1] * 9 + [-0.9]) for _ in range(200)] for _ in range(trials)]
    found = sum(highest_capital(one, 20) >= 20 for one in differences)
    # At most 5 % ever reach 20, and three standard errors of 2,000 trials.
    assert found / trials <= 0.065
