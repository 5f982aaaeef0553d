import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.night_verdict import (
    Judgement,
    NightCounts,
    NightVerdict,
    judge_nights,
    log_decline,
    log_gain,
)
from skillopt_airflow.core.sign_test import log_e_value

ALPHA = 0.05
NIGHTS = 30
counts = st.builds(NightCounts, wins=st.integers(0, 40), losses=st.integers(0, 40))


def night(rng: random.Random, chance_to_win: float, discordant: int = 12) -> NightCounts:
    wins = sum(rng.random() < chance_to_win for _ in range(discordant))
    return NightCounts(wins=wins, losses=discordant - wins)


def months(chance_to_win: float, count: int, seed: int) -> list[list[NightCounts]]:
    rng = random.Random(seed)
    return [[night(rng, chance_to_win) for _ in range(NIGHTS)] for _ in range(count)]


def ever(nights: list[NightCounts], verdict: NightVerdict) -> bool:
    strong = [NightCounts(wins=9)] * NIGHTS
    return any(judge_nights(strong[:n], nights[:n], ALPHA).verdict is verdict for n in range(1, NIGHTS + 1))


def test_over_200_healthy_months_false_demotions_stay_at_most_alpha() -> None:
    """Healthy at its limit: as good as the champion before it, so that every difference is a coin."""
    assert sum(ever(month, NightVerdict.DEMOTE) for month in months(0.5, 200, seed=1)) <= ALPHA * 200


def test_a_champion_that_is_better_is_practically_never_demoted() -> None:
    assert not any(ever(month, NightVerdict.DEMOTE) for month in months(0.7, 200, seed=2))


def test_a_decline_after_good_nights_is_found_within_days() -> None:
    rng = random.Random(3)
    for _ in range(50):
        nights = [night(rng, 0.9) for _ in range(11)] + [night(rng, 0.1) for _ in range(7)]
        assert judge_nights(nights[:11], nights[:11], ALPHA).verdict is NightVerdict.KEEP
        assert judge_nights([NightCounts(wins=9)] * 18, nights, ALPHA).verdict is NightVerdict.DEMOTE


def test_without_the_mean_over_starts_good_nights_would_hide_it() -> None:
    nights = [NightCounts(wins=11, losses=1)] * 11 + [NightCounts(wins=1, losses=11)] * 5
    assert log_e_value(sum(n.losses for n in nights), sum(n.wins for n in nights)) < 0
    assert log_decline(nights) > -math.log(ALPHA)


def test_stale_is_the_same_claim_against_the_seed() -> None:
    bad = [NightCounts(wins=1, losses=11)] * 6
    assert judge_nights(bad, None, ALPHA).verdict is NightVerdict.STALE
    assert judge_nights([], bad, ALPHA).verdict is NightVerdict.DEMOTE
    assert judge_nights(bad, None, ALPHA).decline_to_seed == judge_nights([], bad, ALPHA).decline_to_previous


@given(st.lists(counts, max_size=12))
def test_the_first_nights_alone_prove_nothing_that_is_not_there(nights: list[NightCounts]) -> None:
    judgement = judge_nights(nights, nights, ALPHA)
    assert math.isfinite(judgement.gain_on_seed)
    assert math.isfinite(judgement.decline_to_seed)
    assert judgement == Judgement.model_validate_json(judgement.model_dump_json())
    if not nights:
        assert judgement.verdict is NightVerdict.WATCH


@given(st.lists(counts, max_size=8), st.integers(1, 40))
def test_losses_raise_the_evidence_of_a_decline_and_wins_lower_it(nights: list[NightCounts], more: int) -> None:
    worse, better = NightCounts(losses=more), NightCounts(wins=more)
    assert log_decline([*nights, worse]) > log_decline([*nights, better])
    assert log_gain([*nights, better]) > log_gain([*nights, worse])


@given(st.integers(0, 6), st.integers(1, 9))
def test_the_mean_over_a_nights_outcomes_is_one_under_fair_coins(good: int, discordant: int) -> None:
    """An E-process: over what the next night may bring, the evidence stays the same in the mean."""
    before = [NightCounts(wins=3, losses=4)] * good
    mean = math.fsum(
        math.comb(discordant, wins)
        / 2**discordant
        * math.exp(log_decline([*before, NightCounts(wins=wins, losses=discordant - wins)]))
        for wins in range(discordant + 1)
    )
    assert mean == pytest.approx(math.exp(log_decline(before)))


def test_the_reason_tells_the_evidence_and_what_it_would_take() -> None:
    reason = judge_nights([NightCounts(wins=2)], None, ALPHA).reason
    assert reason == "nothing certain: better than the seed skill, E = 2.33 over 1 night, below 20"
    assert "E = 10^" in judge_nights([NightCounts(wins=40)] * 5, None, ALPHA).reason
