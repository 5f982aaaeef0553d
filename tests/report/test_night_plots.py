from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from skillopt_airflow.core.night_verdict import NightPoint
from skillopt_airflow.report.night_plots import AliasEvent, nights_chart
from skillopt_airflow.store.night_table import Contender
from skillopt_airflow.training.night import ledger
from skillopt_airflow.training.night_series import point_of
from tests import page_data
from tests.report.html_page import SVG, texts

ONE, TWO = (Contender(version=f"v000{number}-0123456789ab", sha256=f"{number}") for number in (1, 2))


def points(count: int, previous: Contender | None = ONE) -> list[NightPoint]:
    made = page_data.nights("searchqa", "openai-chat:m", TWO, previous, count, drop_at=2)
    return [point_of(row) for row in ledger(made, page_data.ALPHA)]


def test_a_chart_names_its_lines_limits_and_events() -> None:
    moved = AliasEvent(datetime(2026, 10, 5, tzinfo=UTC), "demoted", ONE.version)
    long_ago = AliasEvent(datetime(2026, 1, 5, tzinfo=UTC), "published", TWO.version)
    svg = nights_chart(points(20), [long_ago, moved])
    last, description = points(20)[-1], ElementTree.fromstring(svg).findtext(f"{SVG}desc")
    assert f"champion {last.scores['champion']:.4f}" in str(description)
    assert f"verdict {last.judgement.verdict.value}" in str(description)
    assert ("var(--plot-blue)" in svg, "#0060a0" in svg) == (True, False)
    shown = texts(svg)
    assert {"champion", "champion before", "seed", "alarm"} <= set(shown)
    assert {"worse than the seed", "worse than the champion before"} <= set(shown)
    assert "demoted to v0001" in shown
    assert "published v0002" not in shown
    # The demotion by the last night is marked on the day after it.
    nights = points(5)
    after = datetime.fromisoformat(nights[-1].date).replace(tzinfo=UTC) + timedelta(days=1, minutes=20)
    assert "demoted to v0001" in texts(nights_chart(nights, [AliasEvent(after, "demoted", ONE.version)]))


@pytest.mark.parametrize("count", [1, 60])
def test_what_a_night_lacks_is_left_out(count: int) -> None:
    bare = [point.model_copy(update={"intervals": {}}) for point in points(count, None)]
    assert "champion before" not in texts(nights_chart(bare, []))


@pytest.mark.nightly
def test_nights_under_another_metric_are_left_out() -> None:
    nights = points(20)
    of_before = [point.model_copy(update={"metric": "soft"}) for point in nights[:8]]
    svg = nights_chart([*of_before, *nights[8:]], [])
    assert any("another metric: 8" in text for text in texts(svg))
    assert f"12 nights from {nights[8].date}" in svg
    assert not any("left out" in text for text in texts(nights_chart(nights, [])))
