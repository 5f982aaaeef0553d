import pytest

from skillopt_airflow.core.gate.decision import UNGATED
from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.policies import Action, Verdict
from skillopt_airflow.core.run.history import MomentHistory, StepSeconds
from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.core.values.skill import diff_of
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.report import summary
from skillopt_airflow.report.plots import learning_curve
from skillopt_airflow.report.run_page import render
from skillopt_airflow.report.summary import STANDIN, as_markdown, named
from skillopt_airflow.report.view import ReportView
from tests.store.tables.test_matrix_table import changed, example


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
    assert "Publishing" not in summary.outcome(view.model_copy(update={"test_looks": 0}))
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


def rows(matrix: SkillMatrix) -> list[list[str]]:
    lines = [line for line in as_markdown(matrix).splitlines() if line.startswith("| test")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_skill_in_every_cell_has_a_row_and_what_has_no_score_a_reason() -> None:
    found = rows(example())
    assert [row[1:4] for row in found] == [
        [f"`openai-chat:{target}`", "`chat`", f"`skill {place}`"] for target in ("m", "other") for place in (0, 1)
    ]
    assert found[0][4].startswith("1.0000 [")
    assert found[0][5:8] == ["12", "100%", ""]
    assert found[1][7].endswith("0:0")
    assert found[2][4:8] == ["no score", "0", "0%", ""]
    text = as_markdown(example())
    assert "`evaluation.min_coverage`" in text
    assert "- test, `openai-chat:other`, `chat`, `skill 0`: `12 of 12 items: model_error: " in text


def test_names_that_somebody_else_wrote_break_no_table() -> None:
    matrix = example()
    skills = tuple(skill.model_copy(update={"source": "a|b`c` <img src=x>"}) for skill in matrix.skills)
    hostile = matrix.model_copy(update={"skills": skills})
    assert {len(row) for row in rows(hostile)} == {10}
    assert rows(hostile)[0][3] == "`a¦b'c' <img src=x>`"
    # And the stand-in is called what it is.
    cells = tuple(cell.model_copy(update={"target": "openai-chat:stand-in-target"}) for cell in matrix.cells)
    offline = matrix.model_copy(update={"cells": cells})
    assert [STANDIN in as_markdown(one) for one in (matrix, offline)] == [False, True]


def test_a_version_is_told_beside_another_name() -> None:
    skill = example().skills[0].model_copy(update={"source": "champion", "version": "v0003-0123456789ab"})
    assert named(skill) == "champion (v0003-0123456789ab)"
    assert named(skill.model_copy(update={"source": skill.version})) == skill.version
    assert named(skill.model_copy(update={"version": ""})) == "champion"


def test_verdicts_and_scores_by_type_follow_the_table() -> None:
    matrix = example()
    verdict = Verdict(action=Action.UNDERPOWERED, reason="0 wins are fewer than 5")
    typed = (TypeScore(task_type="a|b", items=3, score=0.5),)
    shown = changed(matrix, verdict=verdict, by_type=typed)
    text = as_markdown(shown.model_copy(update={"policy": "exact_paired"}))
    assert "by policy exact_paired" in text
    assert "- test, `openai-chat:m`, `chat`, `skill 1`: **no (underpowered)**, 0 wins are fewer than 5" in text
    assert "| test, `openai-chat:m`, `chat`, `skill 1` | `a¦b` | 0.5000 | 3 |" in text
