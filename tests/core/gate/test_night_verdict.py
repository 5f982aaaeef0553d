import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.gate.night_verdict import (
    MEMORY,
    RECENT,
    NightDecision,
    NightMean,
    NightVerdict,
    alarm_height,
    decide_nights,
    decline,
    gain,
)

ALPHA = 0.05
means = st.builds(NightMean, mean=st.floats(-1.0, 1.0), variance=st.floats(0.0, 1.0), count=st.integers(1, 400))


def nights(count: int, mean: float, seed: int = 1, spread: float = 0.03) -> list[NightMean]:
    rng = random.Random(seed)
    return [NightMean(mean=mean + rng.gauss(0, spread), variance=0.2, count=50) for _ in range(count)]


def verdicts(against_seed: list[NightMean], rival: list[NightMean] | None = None) -> list[NightVerdict]:
    """The verdict after each night."""
    return [
        decide_nights(against_seed[:n], None if rival is None else rival[:n], None, ALPHA).verdict
        for n in range(1, len(against_seed) + 1)
    ]


def test_a_good_past_hides_no_decline_to_the_level_of_the_seed() -> None:
    series = [*nights(60, 0.1), *nights(300, 0.0, seed=2)]
    # Until what is recent is of after the decline.
    found = {n: decide_nights(series[:n], None, None, ALPHA).verdict for n in (20, 60, 92, 100, 120, 180, 360)}
    assert set(found.values()) == {NightVerdict.HEALTHY, NightVerdict.INCONCLUSIVE}
    assert [n for n, verdict in found.items() if verdict is NightVerdict.HEALTHY] == [20, 60]


def test_a_champion_that_is_two_points_better_in_the_mean_is_not_demoted_for_losing_on_more_items() -> None:
    """Nine items of ten lose two points, and the tenth wins forty: by signs it loses, by the mean it wins."""
    rng = random.Random(3)
    better = [NightMean.of({str(n): 0.4 if rng.random() < 0.1 else -0.02 for n in range(100)}, {}) for _ in range(60)]
    assert sum(night.mean for night in better) / 60 == pytest.approx(0.02, abs=0.005)
    assert NightVerdict.REGRESSED not in verdicts(nights(60, 0.1), better)


def test_a_decline_after_good_nights_is_found_within_days() -> None:
    rival = [*nights(11, 0.1), *nights(10, -0.2, seed=2)]
    found = verdicts(nights(21, 0.2, seed=3), rival)
    assert NightVerdict.REGRESSED not in found[:11]
    assert found[-1] is NightVerdict.REGRESSED


def test_stale_is_the_same_claim_against_the_seed_and_drift_one_against_no_rival() -> None:
    bad = nights(9, -0.3)
    assert decide_nights(bad, None, None, ALPHA).verdict is NightVerdict.WORSE_THAN_SEED
    assert decide_nights([], bad, None, ALPHA).verdict is NightVerdict.REGRESSED
    assert (
        decide_nights(bad, None, None, ALPHA).decline_to_seed == decide_nights([], bad, None, ALPHA).decline_to_previous
    )

    # Drift is said of a champion that no rival beats.
    same = nights(9, 0.0, seed=2)
    assert decide_nights(same, same, bad, ALPHA).verdict is NightVerdict.BELOW_PUBLISHED
    assert decide_nights(nights(9, 0.3), same, bad, ALPHA).verdict is NightVerdict.BELOW_PUBLISHED
    assert decide_nights(same, bad, bad, ALPHA).verdict is NightVerdict.REGRESSED
    assert decide_nights(bad, same, bad, ALPHA).verdict is NightVerdict.WORSE_THAN_SEED
    assert decide_nights(same, same, same, ALPHA).verdict is NightVerdict.INCONCLUSIVE


@given(st.lists(means, max_size=12))
def test_a_judgement_is_stored_and_read(series: list[NightMean]) -> None:
    judgement = decide_nights(series, series, series, ALPHA)
    assert judgement == NightDecision.model_validate_json(judgement.model_dump_json())
    assert (judgement.alarm, judgement.alpha) == (pytest.approx(9.4), ALPHA)
    if not series:
        assert judgement.verdict is NightVerdict.INCONCLUSIVE


def test_one_night_is_no_evidence_however_many_items_it_has() -> None:
    for mean in (-1.0, 1.0):
        one = [NightMean(mean=mean, variance=0.01, count=10_000)]
        assert decide_nights(one, one, one, ALPHA).verdict is NightVerdict.INCONCLUSIVE


def test_the_reason_tells_the_evidence_and_what_it_would_take() -> None:
    one = NightMean(mean=0.1, variance=0.2, count=50)
    assert "no two nights yet" in decide_nights([one], None, None, ALPHA).reason
    assert "over 30 nights" in decide_nights([one] * 99, None, None, ALPHA).reason
    worse = one.model_copy(update={"mean": -0.3})
    assert "CUSUM 19.0, at least 9.4" in decide_nights([worse] * 9, None, None, ALPHA).reason


MONTH = 30
varied_means = st.builds(
    NightMean, mean=st.floats(-1.0, 1.0, allow_subnormal=False), variance=st.floats(0.0, 1.0), count=st.integers(1, 400)
)


def series(rng: random.Random, nights: int, mean: float, mood: float, variance: float, count: int) -> list[NightMean]:
    """Nights whose varied_means vary by a mood of their own, and by their items."""
    spread = math.sqrt(variance / count)
    return [
        NightMean(mean=mean + rng.gauss(0, mood) + rng.gauss(0, spread), variance=variance, count=count)
        for _ in range(nights)
    ]


def alarms(nights: list[NightMean], since: int = 0) -> int | None:
    """The nights until the first alarm of nights after the first ones; None without one."""
    for last in range(since, len(nights)):
        if decline(nights[: last + 1]) >= alarm_height(ALPHA):
            return last - since + 1
    return None


@pytest.mark.parametrize(("count", "icc"), [(20, 0.0), (200, 0.0), (20, 0.1), (200, 0.1), (200, 0.3)])
def test_a_mood_of_the_night_is_no_change(count: int, icc: float) -> None:
    """The items of a night share a part of their variance; by signs of items, two thirds of these months alarm."""
    rng, variance = random.Random(7), 0.3
    mood = math.sqrt(variance * icc / (1 - icc))
    found = [alarms(series(rng, MONTH, 0.0, mood, variance, count)) for _ in range(100)]
    # Two standard errors above the level.
    assert sum(one is not None for one in found) <= 9


def test_nights_of_fewer_items_are_no_change() -> None:
    """Of nights that share nothing, the mean of few items varies more than the nights before would say."""
    rng = random.Random(6)
    found = [
        alarms(series(rng, 60, 0.0, 0.0, 0.3, 1000) + series(rng, MONTH, 0.0, 0.0, 0.3, 10), since=60)
        for _ in range(100)
    ]
    assert sum(one is not None for one in found) <= 9


def test_one_odd_night_in_a_good_series_is_no_change() -> None:
    rng = random.Random(8)
    nights = series(rng, 40, 0.1, 0.02, 0.3, 200)
    assert alarms([*nights, NightMean(mean=-0.9, variance=0.3, count=200), *nights], since=20) is None


def test_a_large_change_is_seen_within_days_however_long_all_was_well() -> None:
    rng = random.Random(9)
    for good in (5, 60):
        found = [
            alarms(series(rng, good, 0.1, 0.0, 0.3, 50) + series(rng, 30, -0.2, 0.0, 0.3, 50), since=good)
            for _ in range(15)
        ]
        assert median(math.inf if one is None else one for one in found) <= 11


def test_what_was_gained_long_ago_is_forgotten() -> None:
    rng = random.Random(10)
    good, bad = series(rng, 60, 0.2, 0.02, 0.3, 50), series(rng, RECENT, 0.0, 0.02, 0.3, 50)
    before, after = gain(good), gain([*good, *bad])
    assert before is not None
    assert after is not None
    assert before < ALPHA < after


def test_a_gain_is_claimed_falsely_on_few_nights() -> None:
    rng = random.Random(13)
    found = [gain(series(rng, RECENT, 0.0, 0.1, 0.3, 50)) for _ in range(400)]
    # Three standard errors above the level.
    assert sum(p is not None and p <= ALPHA for p in found) <= 33


def test_two_nights_that_happen_to_agree_are_no_proof() -> None:
    agreeing = [NightMean(mean=0.01, variance=0.3, count=20)] * 2
    p = gain(agreeing)
    assert p is not None
    assert p > ALPHA
    assert gain(agreeing[:1]) is None


def test_older_nights_than_are_remembered_change_nothing() -> None:
    nights = series(random.Random(11), MEMORY, -0.01, 0.05, 0.3, 30)
    before = [NightMean(mean=-1.0, variance=1.0, count=1)] * 9
    assert decline([*before, *nights]) == decline(nights) > 0
    assert gain([*before, *nights]) == gain(nights)


def test_the_alarm_is_higher_where_fewer_false_ones_are_wanted() -> None:
    assert alarm_height(0.01) > alarm_height(0.05) == pytest.approx(9.4)


@given(st.lists(varied_means, min_size=1, max_size=12))
def test_a_chart_is_a_number_and_has_no_unit(nights: list[NightMean]) -> None:
    varied = [night.model_copy(update={"variance": night.variance + 0.01}) for night in nights]
    halved = [night.model_copy(update={"mean": night.mean / 2, "variance": night.variance / 4}) for night in varied]
    assert 0 <= decline(halved) == pytest.approx(decline(varied), abs=1e-6)


@given(st.lists(varied_means, max_size=8))
def test_a_worse_night_is_evidence_of_a_decline(nights: list[NightMean]) -> None:
    worse, better = (NightMean(mean=mean, variance=0.2, count=20) for mean in (-0.3, 0.3))
    assert decline([*nights, worse]) >= decline([*nights, better])


def test_a_night_is_summarized_by_its_items_and_groups() -> None:
    values = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}
    assert NightMean.of(values, {"a": "x", "b": "x"}) == NightMean(mean=0.5, variance=0.125, count=3)
