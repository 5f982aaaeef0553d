from random import Random

import pytest

from bench.night_alarms import KINDS, Kind, delay, false_demotions, false_drifts, false_keeps


@pytest.mark.slow
def test_nights_that_share_a_mood_demote_seldom_and_a_large_drop_is_seen() -> None:
    hard_with_moods = KINDS[1]
    # 5 %, and three standard errors of so many months.
    months, most = 60, 0.05 + 3 * 0.028
    assert false_demotions(hard_with_moods, 200, months=months) <= most
    assert false_demotions(hard_with_moods, 50, gain=0.02, months=months) <= most
    assert false_keeps(hard_with_moods, 50, months=months) <= most
    assert false_drifts(0.1, 50, months=months) <= most
    assert delay(hard_with_moods, 50, good=30, drop=0.6, declines=3) < 10


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.name}, {kind.shared}")
def test_a_night_is_of_its_size(kind: Kind) -> None:
    night = kind.night(Random(1), 40)
    assert night.count == 40
    assert -1 <= night.mean <= 1
