import pytest
from pydantic import ValidationError

from skillopt_airflow.core.gate import UNGATED
from skillopt_airflow.core.run_history import MomentHistory, StepSeconds
from skillopt_airflow.core.types import Split
from skillopt_airflow.report import summary
from skillopt_airflow.report.plots import learning_curve
from skillopt_airflow.report.run_page import render
from skillopt_airflow.report.view import ReportView, diff_of


def test_the_paragraph_tells_what_came_out(view: ReportView) -> None:
    told = summary.outcome(view)
    figures = ("version 6", "0.8125", "0.5500", "418 tokens", "1.944", "0.7375 against 0.5375 (+0.2000)", "6 of 13")
    assert all(figure in told for figure in figures)
    assert told.endswith("v0003-0123456789ab, by look 1 at these items of the test split.")
    missed = tuple(moment for moment in view.moments if moment.decision.equal)
    assert "No candidate was made." in summary.outcome(view.model_copy(update={"moments": missed}))


def test_candidates_that_no_gate_decided_on_are_told_apart(view: ReportView) -> None:
    def taken(moment: MomentHistory) -> MomentHistory:
        reason = f"{UNGATED}, which says {moment.decision.reason}"
        return moment.model_copy(update={"decision": moment.decision.model_copy(update={"reason": reason})})

    slow_update = [taken(one) if one.kind == "slow_update" else one for one in view.moments]
    ungated = view.model_copy(update={"moments": tuple(slow_update)})
    assert "6 of 13 candidates were taken, 1 of them without the gate." in summary.outcome(ungated)
    assert "6 were taken, 1 of them without the gate." in learning_curve(ungated)
    assert "in 12 steps, 1 without the gate" in render(ungated)


def test_cut_answers_are_a_warning_where_they_are_many(view: ReportView) -> None:
    assert summary.cuts(view).startswith("In evaluate: 96 of 802 answers (12%)")
    assert summary.cuts(view).endswith("model.max_tokens.")
    assert summary.cuts(view.model_copy(update={"outcomes": view.outcomes[:2]})) == ""
    # And it says what it takes for one observation.
    assert "independent" in summary.independence(view)
    both = view.model_copy(update={"val_groups": 7, "test_groups": 1200})
    assert "groups: 7 on the selection split, 1,200 on the test split." in summary.independence(both)


def test_the_points_are_those_of_the_test_split(view: ReportView) -> None:
    assert summary.points_gained(view) == pytest.approx(20)
    seed, best = view.test["seed"], view.test["best"]
    for lost in ({}, {"best": best}, {"seed": best, "best": seed}, {"seed": seed, "best": seed}):
        assert summary.points_gained(view.model_copy(update={"test": lost})) == 0
    # Of items that only one of the two has a score for, nobody knows what was gained.
    partial = {"seed": seed, "best": best.model_copy(update={"coverage": 0.9})}
    assert summary.points_gained(view.model_copy(update={"test": partial})) == 0


def test_a_run_that_improved_nothing_says_so(view: ReportView) -> None:
    told = summary.outcome(view.model_copy(update={"best": view.seed, "published": None}))
    assert "the seed scores 0.5500" in told
    assert told.endswith("published nothing.")
    assert "test split" not in told


def test_the_line_on_test_says_how_often_these_items_were_looked_at(view: ReportView) -> None:
    for looks, times in ((1, "items once"), (12, "items 12 times")):
        assert times in summary.outcome(view.model_copy(update={"test_looks": looks}))
    assert "To publish" not in summary.outcome(view.model_copy(update={"test_looks": 0}))
    assert view.published is not None
    published = view.published.model_copy(update={"split": Split.TEST, "look": 2})
    assert "by look 2" in summary.outcome(view.model_copy(update={"published": published}))


def test_the_total_of_a_price_that_is_not_known_is_not_known(view: ReportView) -> None:
    assert summary.total(view.costs).usd is None
    priced = [row for row in view.costs if row.usd is not None]
    assert summary.total(priced).usd == pytest.approx(sum(row.usd or 0.0 for row in priced))
    assert summary.total([]).usd == 0
    assert summary.total(view.costs).tokens == 2_619_000
    part = StepSeconds(wall=10, model=4, container=3, own=2, airflow=1)
    assert summary.total_seconds([part, part]) == StepSeconds(wall=20, model=8, container=6, own=4, airflow=2)


def test_figures_as_text() -> None:
    durations = {0.04: "0.0 s", 59.94: "59.9 s", 61.5: "1 min 02 s", 3599.9: "1 h 00 min", 34_020: "9 h 27 min"}
    assert {seconds: summary.duration(seconds) for seconds in durations} == durations
    prices = {None: "not known", 0.0: "$0.00", 0.01234: "$0.0123", 1234.5: "$1,234.50"}
    assert {price: summary.usd(price) for price in prices} == prices
    assert (summary.score(0.0), summary.score(None)) == ("0.0000", "–")
    assert (summary.signed(0.25), summary.signed(-0.25)) == ("+0.2500", "−0.2500")


def test_a_difference_of_two_skills_names_no_files() -> None:
    assert diff_of("a\nb\n", "a\nc\n") == "@@ -1,3 +1,3 @@\n a\n-b\n+c\n "
    assert diff_of("a\n", "a\n") == ""


def test_a_skill_without_an_origin_for_each_line_is_no_view(view: ReportView) -> None:
    with pytest.raises(ValidationError, match="origins"):
        ReportView.model_validate(view.model_dump() | {"skill": "one line"})
