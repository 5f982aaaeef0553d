import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.night_evidence import NightMean
from skillopt_airflow.core.night_verdict import Judgement, NightVerdict, judge_nights

ALPHA = 0.05
means = st.builds(NightMean, mean=st.floats(-1.0, 1.0), variance=st.floats(0.0, 1.0), count=st.integers(1, 400))


def nights(count: int, mean: float, seed: int = 1, spread: float = 0.03) -> list[NightMean]:
    rng = random.Random(seed)
    return [NightMean(mean=mean + rng.gauss(0, spread), variance=0.2, count=50) for _ in range(count)]


def verdicts(against_seed: list[NightMean], rival: list[NightMean] | None = None) -> list[NightVerdict]:
    """The verdict after each night."""
    return [
        judge_nights(against_seed[:n], None if rival is None else rival[:n], None, ALPHA).verdict
        for n in range(1, len(against_seed) + 1)
    ]


def test_a_good_past_hides_no_decline_to_the_level_of_the_seed() -> None:
    series = [*nights(60, 0.1), *nights(300, 0.0, seed=2)]
    # Until what is recent is of after the decline.
    found = {n: judge_nights(series[:n], None, None, ALPHA).verdict for n in (20, 60, 92, 100, 120, 180, 360)}
    assert set(found.values()) == {NightVerdict.KEEP, NightVerdict.WATCH}
    assert [n for n, verdict in found.items() if verdict is NightVerdict.KEEP] == [20, 60]


def test_a_champion_that_is_two_points_better_in_the_mean_is_not_demoted_for_losing_on_more_items() -> None:
    """Nine items of ten lose two points, and the tenth wins forty: by signs it loses, by the mean it wins."""
    rng = random.Random(3)
    better = [NightMean.of({str(n): 0.4 if rng.random() < 0.1 else -0.02 for n in range(100)}, {}) for _ in range(60)]
    assert sum(night.mean for night in better) / 60 == pytest.approx(0.02, abs=0.005)
    assert NightVerdict.DEMOTE not in verdicts(nights(60, 0.1), better)


def test_a_decline_after_good_nights_is_found_within_days() -> None:
    rival = [*nights(11, 0.1), *nights(10, -0.2, seed=2)]
    found = verdicts(nights(21, 0.2, seed=3), rival)
    assert NightVerdict.DEMOTE not in found[:11]
    assert found[-1] is NightVerdict.DEMOTE


def test_stale_is_the_same_claim_against_the_seed_and_drift_one_against_no_rival() -> None:
    bad = nights(9, -0.3)
    assert judge_nights(bad, None, None, ALPHA).verdict is NightVerdict.STALE
    assert judge_nights([], bad, None, ALPHA).verdict is NightVerdict.DEMOTE
    assert (
        judge_nights(bad, None, None, ALPHA).decline_to_seed == judge_nights([], bad, None, ALPHA).decline_to_previous
    )

    # Drift is said of a champion that no rival beats.
    same = nights(9, 0.0, seed=2)
    assert judge_nights(same, same, bad, ALPHA).verdict is NightVerdict.DRIFT
    assert judge_nights(nights(9, 0.3), same, bad, ALPHA).verdict is NightVerdict.DRIFT
    assert judge_nights(same, bad, bad, ALPHA).verdict is NightVerdict.DEMOTE
    assert judge_nights(bad, same, bad, ALPHA).verdict is NightVerdict.STALE
    assert judge_nights(same, same, same, ALPHA).verdict is NightVerdict.WATCH


@given(st.lists(means, max_size=12))
def test_a_judgement_is_stored_and_read(series: list[NightMean]) -> None:
    judgement = judge_nights(series, series, series, ALPHA)
    assert judgement == Judgement.model_validate_json(judgement.model_dump_json())
    assert (judgement.alarm, judgement.alpha) == (pytest.approx(9.4), ALPHA)
    if not series:
        assert judgement.verdict is NightVerdict.WATCH


def test_one_night_is_no_evidence_however_many_items_it_has() -> None:
    for mean in (-1.0, 1.0):
        one = [NightMean(mean=mean, variance=0.01, count=10_000)]
        assert judge_nights(one, one, one, ALPHA).verdict is NightVerdict.WATCH


def test_the_reason_tells_the_evidence_and_what_it_would_take() -> None:
    one = NightMean(mean=0.1, variance=0.2, count=50)
    assert "no two nights yet" in judge_nights([one], None, None, ALPHA).reason
    assert "over 30 nights" in judge_nights([one] * 99, None, None, ALPHA).reason
    worse = one.model_copy(update={"mean": -0.3})
    assert "CUSUM 19.0, at least 9.4" in judge_nights([worse] * 9, None, None, ALPHA).reason
