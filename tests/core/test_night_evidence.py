import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.night_evidence import MEMORY, RECENT, NightMean, log_recent_rise, log_rise
from skillopt_airflow.core.paired import paired_values

ALPHA = 0.05
MONTH = 30
# Half of the smallest number of all is 0, by which nothing rises.
means = st.builds(
    NightMean, mean=st.floats(-1.0, 1.0, allow_subnormal=False), variance=st.floats(0.0, 1.0), count=st.integers(1, 400)
)


def series(rng: random.Random, nights: int, mean: float, mood: float, variance: float, count: int) -> list[NightMean]:
    """Nights whose means vary by a mood of their own, and by their items."""
    spread = math.sqrt(variance / count)
    return [
        NightMean(mean=mean + rng.gauss(0, mood) + rng.gauss(0, spread), variance=variance, count=count)
        for _ in range(nights)
    ]


def alarms(nights: list[NightMean], since: int = 0) -> int | None:
    """The nights until the first alarm of nights after the first ones; None without one."""
    wanted = math.log(MONTH / ALPHA)
    for last in range(since, len(nights)):
        if log_rise(nights[: last + 1]) >= wanted:
            return last - since + 1
    return None


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("count", "icc"), [(20, 0.0), (200, 0.0), (20, 0.1), (200, 0.1), (200, 0.3)])
def test_a_mood_of_the_night_is_no_change(count: int, icc: float) -> None:
    """The items of a night share a part of their variance; by signs of items, two thirds of these months alarm."""
    rng, variance = random.Random(7), 0.3
    mood = math.sqrt(variance * icc / (1 - icc))
    found = [alarms(series(rng, MONTH, 0.0, mood, variance, count)) for _ in range(60)]
    assert sum(one is not None for one in found) <= ALPHA * 60


def test_one_odd_night_in_a_good_series_is_no_change() -> None:
    rng = random.Random(8)
    nights = series(rng, 40, -0.1, 0.02, 0.3, 200)
    assert alarms([*nights, NightMean(mean=0.9, variance=0.3, count=200), *nights], since=20) is None


@pytest.mark.slow
def test_a_large_change_is_seen_within_days_however_long_all_was_well() -> None:
    rng = random.Random(9)
    for good in (5, 60):
        found = [
            alarms(series(rng, good, -0.1, 0.0, 0.3, 50) + series(rng, 30, 0.2, 0.0, 0.3, 50), since=good)
            for _ in range(15)
        ]
        assert median(math.inf if one is None else one for one in found) <= 8


def test_what_was_gained_long_ago_is_forgotten() -> None:
    rng = random.Random(10)
    good, bad = series(rng, 60, 0.2, 0.02, 0.3, 50), series(rng, RECENT, 0.0, 0.02, 0.3, 50)
    assert log_recent_rise(good) > math.log(1 / ALPHA) > log_recent_rise([*good, *bad])


def test_older_nights_than_are_remembered_change_nothing() -> None:
    nights = series(random.Random(11), MEMORY, 0.1, 0.05, 0.3, 30)
    before = [NightMean(mean=-1.0, variance=1.0, count=1)] * 9
    assert log_rise([*before, *nights]) == log_rise(nights)
    assert log_recent_rise([*before, *nights]) == log_recent_rise(nights)


def test_the_mean_e_value_of_nights_without_a_rise_is_one() -> None:
    """With the variance that is assumed of them, in the mean over it."""
    rng, total, tries = random.Random(12), 0.0, 4000
    for _ in range(tries):
        # Two nights' worth is known: the prior's variance over chi squared.
        sigma = math.sqrt(2 * 0.3 / rng.gammavariate(1.0, 2.0))
        night = NightMean(mean=0.0, variance=0.3, count=20)
        drawn = [night.model_copy(update={"mean": rng.gauss(0, sigma * math.sqrt(night.scale))}) for _ in range(3)]
        total += math.exp(log_recent_rise(drawn))
    # Evidence against is cut off at nothing, and odd nights count less.
    assert 0.3 < total / tries <= 1.05


@given(st.lists(means, min_size=1, max_size=12))
def test_evidence_is_a_number_and_has_no_unit(nights: list[NightMean]) -> None:
    assert math.isfinite(log_rise(nights))
    assert math.isfinite(log_recent_rise(nights))
    varied = [night.model_copy(update={"variance": night.variance + 0.01}) for night in nights]
    halved = [night.model_copy(update={"mean": night.mean / 2, "variance": night.variance / 4}) for night in varied]
    assert log_rise(halved) == pytest.approx(log_rise(varied), abs=1e-6)


@given(st.lists(means, max_size=8))
def test_a_better_night_is_evidence_of_a_rise(nights: list[NightMean]) -> None:
    worse, better = (NightMean(mean=mean, variance=0.2, count=20) for mean in (-0.3, 0.3))
    assert log_rise([*nights, better]) >= log_rise([*nights, worse])


def test_a_night_is_summarized_by_its_items_and_groups() -> None:
    values = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}
    assert NightMean.of(values, {"a": "x", "b": "x"}) == NightMean(mean=0.5, variance=0.125, count=3)
    # A table of single hard scores tells as much as the items.
    pairs = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)]
    values = {str(place): mine - other for place, (mine, other) in enumerate(pairs)}
    assert NightMean.of_table(paired_values(pairs)) == NightMean.of(values, {})
