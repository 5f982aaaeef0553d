from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from example_run import Training, evaluation, proposed
from matplotlib import rcParams

from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.gate.night_verdict import NightPoint
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.report import plots
from skillopt_airflow.report.plots import AliasEvent, nights_chart
from skillopt_airflow.report.view import ReportView
from skillopt_airflow.store.tables.night_table import Contender
from skillopt_airflow.training.champion.night_conclusion import point_of
from tests import page_data
from tests.report.html_page import SVG, texts


def test_a_plot_is_an_image_with_a_name_a_description_and_ids_of_its_own(view: ReportView) -> None:
    # Dollar signs are no formula.
    row = view.costs[0].model_copy(update={"stage": "$x_1$ & <b>"})
    curve, costs = plots.learning_curve(view), plots.costs((row, *view.costs[1:]))
    assert "$x_1$ & <b> (target)" in texts(costs)
    assert f"{view.best.score:.4f}" in str(ElementTree.fromstring(curve).findtext(f"{SVG}desc"))
    ids: list[str] = []
    for svg in (curve, costs):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        spoken = [root.find(f"{SVG}{name}") for name in ("title", "desc")]
        assert all(element is not None and element.text for element in spoken)
        assert root.get("aria-labelledby") == " ".join(str(one.get("id")) for one in spoken if one is not None)
        assert root.get("viewBox")
        assert not svg.startswith("<?xml")
        ids += [str(element.get("id")) for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))


def test_every_verdict_that_occurs_has_its_own_mark(view: ReportView) -> None:
    looks = [(mark.marker, mark.color) for mark in (*plots.MARKS.values(), plots.EARLY)]
    assert set(plots.MARKS) == set(Action)
    assert len({marker for marker, _ in looks}) == len(looks)
    shown = texts(plots.learning_curve(view))
    occurring = {moment.decision.action for moment in view.moments}
    assert {mark.name for action, mark in plots.MARKS.items() if action in occurring} <= set(shown)
    assert plots.MARKS[Action.ACCEPT].name not in shown
    assert {plots.EARLY.name, "epoch 1", "epoch 2", "seed", "best", "last", "hard score, selection split"} <= set(shown)


@pytest.mark.nightly
def test_a_long_run_an_empty_one_and_a_gap_are_drawn(view: ReportView) -> None:
    training = Training()
    for step in range(1, 201):
        moment = Moment(kind="step", epoch=(step - 1) // 10 + 1, step=step)
        training.take(moment, (proposed(step),), evaluation(36 - step // 8, shift=step % 3))
    long = view.model_copy(update={"moments": tuple(training.moments)})
    assert len(plots.learning_curve(long)) < 400_000
    assert "epoch 1" not in texts(plots.learning_curve(long))
    by_epoch = {f"epoch {epoch}": view.test["last"] for epoch in range(1, 4)}
    tested = view.model_copy(update={"test": by_epoch | view.test})
    assert {"1", "2", "3", "best", "last"} <= set(texts(plots.learning_curve(tested)))
    empty = view.model_copy(update={"moments": (), "test": {}})
    assert "test split" not in texts(plots.learning_curve(empty))
    # A skill that was never measured leaves a gap.
    gap = view.moments[2].model_copy(update={"score_after": None})
    unmeasured = view.model_copy(update={"moments": (*view.moments[:2], gap, *view.moments[3:])})
    assert "nan" not in plots.learning_curve(unmeasured).lower()


@pytest.mark.nightly
def test_threads_that_draw_at_the_same_time_leave_each_other_and_the_process_alone(view: ReportView) -> None:
    style, alone = dict(rcParams), plots.learning_curve(view)
    with ThreadPoolExecutor(4) as pool:
        drawn = [pool.submit(plots.learning_curve, view) for _ in range(4)]
        plots.costs(view.costs)
        assert {one.result() for one in drawn} == {alone}
    assert dict(rcParams) == style


ONE, TWO = (Contender(version=f"v000{number}-0123456789ab", sha256=f"{number}") for number in (1, 2))


def points(count: int, previous: Contender | None = ONE) -> list[NightPoint]:
    made = page_data.nights("searchqa", "openai-chat:m", TWO, previous, count, drop_at=2)
    return [point_of(row) for row in page_data.ledger(made, page_data.ALPHA)]


def test_a_chart_names_its_lines_limits_and_events() -> None:
    moved = AliasEvent(datetime(2026, 10, 5, tzinfo=UTC), "demoted", ONE.version)
    long_ago = AliasEvent(datetime(2026, 1, 5, tzinfo=UTC), "published", TWO.version)
    svg = nights_chart(points(20), [long_ago, moved])
    last, description = points(20)[-1], ElementTree.fromstring(svg).findtext(f"{SVG}desc")
    assert f"champion {last.scores['champion']:.4f}" in str(description)
    assert f"verdict {last.judgement.verdict.value}" in str(description)
    assert ("var(--plot-blue)" in svg, "#0060a0" in svg) == (True, False)
    shown = texts(svg)
    assert {"champion", "previous champion", "seed", "alarm"} <= set(shown)
    assert {"worse than the seed", "worse than the previous champion"} <= set(shown)
    assert "demoted to v0001" in shown
    assert "published v0002" not in shown
    # The demotion by the last night is marked on the day after it.
    nights = points(5)
    after = datetime.fromisoformat(nights[-1].date).replace(tzinfo=UTC) + timedelta(days=1, minutes=20)
    assert "demoted to v0001" in texts(nights_chart(nights, [AliasEvent(after, "demoted", ONE.version)]))


@pytest.mark.parametrize("count", [1, 60])
def test_what_a_night_lacks_is_left_out(count: int) -> None:
    bare = [point.model_copy(update={"intervals": {}}) for point in points(count, None)]
    assert "previous champion" not in texts(nights_chart(bare, []))


@pytest.mark.nightly
def test_nights_under_another_metric_are_left_out() -> None:
    nights = points(20)
    of_before = [point.model_copy(update={"metric": "soft"}) for point in nights[:8]]
    svg = nights_chart([*of_before, *nights[8:]], [])
    assert any("another metric: 8" in text for text in texts(svg))
    assert f"12 nights from {nights[8].date}" in svg
    assert not any("left out" in text for text in texts(nights_chart(nights, [])))
