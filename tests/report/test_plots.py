from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest
from example_run import Training, evaluation, proposed
from matplotlib import rcParams

from skillopt_airflow.core.gate import Action
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.report import plots
from skillopt_airflow.report.view import ReportView
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
    looks = [(mark.marker, mark.colour) for mark in (*plots.MARKS.values(), plots.EARLY)]
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
