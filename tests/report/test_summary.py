import pytest
from example_run import example
from pydantic import ValidationError

from skillopt_airflow.core.gate import UNGATED
from skillopt_airflow.core.run_history import StepSeconds
from skillopt_airflow.core.types import Split
from skillopt_airflow.report import summary
from skillopt_airflow.report.plots import learning_curve
from skillopt_airflow.report.run_page import render
from skillopt_airflow.report.view import MomentView, ReportView, diff_of


@pytest.fixture(scope="module")
def view() -> ReportView:
    return example()


def test_the_paragraph_tells_what_came_out(view: ReportView) -> None:
    told = summary.outcome(view)
    assert told == (
        "The best skill, version 6, scores 0.8125 on the selection split, where the seed scores 0.5500. It has about "
        "418 tokens; its score for each 1,000 of them is 1.944. On the test split, which had no say in the choice, it "
        "scores 0.7375 against 0.5375 (+0.2000). The gate accepted 6 of 13 candidates. The run published "
        "v0003-0123456789ab."
    )


def test_candidates_that_no_gate_decided_on_are_told_apart(view: ReportView) -> None:
    def taken(moment: MomentView) -> MomentView:
        reason = f"{UNGATED}, which says {moment.decision.reason}"
        return moment.model_copy(update={"decision": moment.decision.model_copy(update={"reason": reason})})

    slow_update = [taken(one) if one.kind == "slow_update" else one for one in view.moments]
    ungated = view.model_copy(update={"moments": tuple(slow_update)})
    assert "6 of 13 candidates were taken, 1 of them without the gate." in summary.outcome(ungated)
    assert "Of 13 candidates, 6 were taken, 1 of them without the gate." in learning_curve(ungated.curve)
    card = '<dt>Candidates taken</dt><dd class="figure">6 of 13</dd><dd class="more">in 12 steps, 1 without the gate'
    assert card in render(ungated)


def test_a_run_whose_edits_all_missed_made_no_candidate(view: ReportView) -> None:
    missed = tuple(moment for moment in view.moments if moment.decision.equal)
    assert "No candidate was made." in summary.outcome(view.model_copy(update={"moments": missed}))


def test_cut_answers_are_a_warning_where_they_are_many(view: ReportView) -> None:
    assert summary.cuts(view) == (
        "In evaluate: 96 of 802 answers (12%) were cut off at the limit of tokens and scored by what they hold; raise "
        "model.max_tokens."
    )
    assert summary.cuts(view.model_copy(update={"outcomes": view.outcomes[:2]})) == ""


def test_the_page_says_what_it_takes_for_one_observation(view: ReportView) -> None:
    assert summary.independence(view).startswith("The items are taken as independent of each other. If several share")
    assert summary.independence(view.model_copy(update={"val_groups": 7})) == (
        "Tests and intervals take the items of a group for one observation; groups: 7 on the selection split."
    )
    both = view.model_copy(update={"val_groups": 7, "test_groups": 1200})
    assert summary.independence(both).endswith("groups: 7 on the selection split, 1,200 on the test split.")


def test_a_run_that_improved_nothing_says_so(view: ReportView) -> None:
    told = summary.outcome(view.model_copy(update={"best_version": 0, "best": view.seed, "published": None}))
    assert told.startswith("No candidate took the seed skill's place as the best one; the seed scores 0.5500")
    assert told.endswith("The run published nothing.")
    assert "test split" not in told


@pytest.mark.parametrize(("looks", "times"), [(1, "once"), (12, "12 times")])
def test_the_line_on_test_says_how_often_these_items_were_looked_at(view: ReportView, looks: int, times: str) -> None:
    looked = f"To publish, skills were compared on these items {times} so far."
    assert looked in summary.outcome(view.model_copy(update={"test_looks": looks}))
    assert "To publish" not in summary.outcome(view.model_copy(update={"test_looks": 0}))


def test_what_was_published_names_its_look(view: ReportView) -> None:
    assert view.published is not None
    published = view.published.model_copy(update={"split": Split.TEST, "look": 2})
    told = summary.outcome(view.model_copy(update={"published": published}))
    assert told.endswith(f"The run published {published.version}, by look 2 at these items of the test split.")


def test_the_total_of_a_price_that_is_not_known_is_not_known(view: ReportView) -> None:
    assert summary.total(view.costs).usd is None
    priced = [row for row in view.costs if row.usd is not None]
    assert summary.total(priced).usd == pytest.approx(sum(row.usd or 0.0 for row in priced))
    assert summary.total([]).usd == 0
    assert summary.total(view.costs).tokens == 2_619_000


def test_seconds_add_up() -> None:
    part = StepSeconds(wall=10, model=4, container=3, own=2, airflow=1)
    assert summary.total_seconds([part, part]) == StepSeconds(wall=20, model=8, container=6, own=4, airflow=2)
    assert summary.total_seconds([]).wall == 0


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (61.5, "1 min 02 s"), (3599.9, "1 h 00 min"), (34_020, "9 h 27 min")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert summary.duration(seconds) == shown


@pytest.mark.parametrize(
    ("price", "shown"), [(None, "not known"), (0.0, "$0.00"), (0.01234, "$0.0123"), (1234.5, "$1,234.50")]
)
def test_prices(price: float | None, shown: str) -> None:
    assert summary.usd(price) == shown


def test_a_score_that_is_not_there_is_a_dash() -> None:
    assert (summary.score(0.0), summary.score(float("nan"))) == ("0.0000", "–")


def test_differences_have_a_sign() -> None:
    assert (summary.signed(0.25), summary.signed(-0.25)) == ("+0.2500", "−0.2500")


def test_a_difference_of_two_skills_names_no_files() -> None:
    assert diff_of("a\nb\n", "a\nc\n") == "@@ -1,3 +1,3 @@\n a\n-b\n+c\n "
    assert diff_of("a\n", "a\n") == ""


def test_a_skill_without_an_origin_for_each_line_is_no_view(view: ReportView) -> None:
    with pytest.raises(ValidationError, match="origins"):
        ReportView.model_validate(view.model_dump() | {"skill": "one line"})
