"""Values of cells against the reference's, case by case; the expectations follow the benchmark's own evaluation."""

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook

from benchmarks.spreadsheetbench.adapter import answer_cells
from benchmarks.spreadsheetbench.scoring import compare, equal
from skillopt_airflow.core.values.types import Score

Sheets = Mapping[str, Mapping[str, Any]]


MORNING = datetime(2024, 1, 1, 11, 59)


@pytest.mark.parametrize(
    ("expected", "same", "other"),
    [
        # Numbers count to two decimals, whatever their type.
        (1, [1.0], []),
        (2.3449, [2.3401], [2.346]),
        (-0.001, [0], []),
        (10**400, [10**400], [1]),
        # A text of a number is that number; any other text counts letter by letter.
        ("1.004", [1], []),
        (" 7 ", [7], []),
        ("1,000", [], [1000]),
        ("Yes", [], ["yes"]),
        ("a", [], ["a "]),
        ("NaN", ["NaN"], ["nan", None]),
        (float("nan"), [float("nan")], []),
        ("inf", ["Infinity"], ["-inf"]),
        ("9" * 400, ["9" * 400], []),
        # A truth value is the number 1 or 0, and no text.
        (True, [1], ["TRUE"]),
        (False, [0], [None]),
        # Empty is empty, and neither zero nor a blank.
        (None, [""], [0]),
        ("", [], [" "]),
        # Dates count to the day they round to, and are the number that a spreadsheet keeps for them.
        (datetime(2024, 1, 1), [MORNING, 45292], [datetime(2024, 1, 1, 12, 1), 45292.5, "2024-01-01"]),
        (datetime(2024, 1, 2), [datetime(2024, 1, 1, 12, 1)], []),
        # Times count to the minute, and are texts then.
        (time(13, 45, 10), [time(13, 45, 50), "13:45"], [time(13, 46), 0.573]),
        (time(12, 0), [], [datetime(1899, 12, 30, 12)]),
        # A duration is compared as it is.
        (timedelta(hours=30), [timedelta(hours=30)], [1.25]),
    ],
)
def test_values_are_equal_as_in_the_official_evaluation(
    expected: object, same: list[object], other: list[object]
) -> None:
    for values, are_equal in ((same, True), (other, False)):
        for value in values:
            assert equal(expected, value) is equal(value, expected) is are_equal, value


def book(path: Path, sheets: Sheets) -> str:
    workbook = Workbook()
    workbook.remove(workbook.active)  # type: ignore[arg-type]
    for title, cells in sheets.items():
        sheet = workbook.create_sheet(title)
        for name, value in cells.items():
            sheet[name] = value
    workbook.save(path)
    workbook.close()
    return str(path)


@pytest.fixture
def judged(tmp_path: Path) -> Any:
    def judge(expected: Sheets, found: Sheets, position: str) -> Score:
        golden, produced = book(tmp_path / "golden.xlsx", expected), book(tmp_path / "output.xlsx", found)
        return compare(golden, produced, answer_cells(position))

    return judge


def test_values_survive_the_files(judged: Any) -> None:
    """What openpyxl makes of the tricky ones on their way through a workbook."""
    cells = {"A1": datetime(2024, 2, 29), "A2": time(9, 30), "A3": True, "A4": "1", "A5": 0.1}
    cells["A6"] = timedelta(hours=30)
    assert judged({"S": cells}, {"S": cells}, "A1:A7").hard == 1.0
    other = {**cells, "A1": "2024-02-29", "A2": "9:30", "A3": "TRUE", "A4": "one"}
    score = judged({"S": cells}, {"S": other}, "A1:A7")
    assert (score.hard, score.soft) == (0.0, pytest.approx(3 / 7))
    head, *wrong = score.feedback.splitlines()
    assert head.startswith("4 of 7 cells")
    assert wrong[0] == 'S!A1: expected the date 2024-02-29 00:00:00, found the text "2024-02-29"'
    assert [line.partition(":")[0] for line in wrong] == ["S!A1", "S!A2", "S!A3", "S!A4"]


def test_only_cells_of_the_answer_position_count(judged: Any) -> None:
    reference = {"First": {"A1": 0, "D9": 0}}
    for position, within, outside in (("B1:C2", "C2", "D2"), ("'First'!B1,C3:C4", "C4", "B2"), ("B:C", "C9", "D9")):
        assert judged(reference, {"First": {"A1": 0, outside: 5}}, position).hard == 1.0
        found = judged(reference, {"First": {"A1": 0, within: 5}}, position)
        assert found.hard == 0.0
        assert f"First!{within}: " in found.feedback


def test_ranges_are_those_of_their_sheets(judged: Any) -> None:
    reference = {"One": {"A1": 1, "A2": 2}, "Two": {"B1": "x", "B2": None}}
    position = "'One!'A1:A2,'Two!'B1:B2"
    assert judged(reference, reference, position).hard == 1.0
    score = judged(reference, {**reference, "Two": {"B1": "y"}}, position)
    assert (score.hard, score.soft) == (0.0, 0.75)
    # Without a sheet the first of the reference is meant.
    reference = {"One": {"A1": 1}, "Two": {"A1": 2}}
    assert judged(reference, {"Two": {"A1": 2}, "One": {"A1": 1}}, "A1").hard == 1.0
    assert judged(reference, {"One": {"A1": 2}, "Two": {"A1": 1}}, "A1").hard == 0.0
    # A missing one is wrong even where nothing is expected.
    score = judged({"One": {"A1": 1}, "Two": {}}, {"One": {"A1": 1}}, "One!A1,Two!A1")
    assert score.hard == 0.0
    assert "'Two'" in score.feedback
    assert judged({"One": {"A1": 1}}, {"one": {"A1": 1}}, "One!A1").hard == 0.0
    assert judged({"One": {}}, {"Other": {}}, "A1").hard == 0.0


def test_a_formula_that_nothing_calculated_is_named_and_long_feedback_is_cut(judged: Any) -> None:
    score = judged({"S": {"A1": 3, "A2": 4}}, {"S": {"A1": "=1+2"}}, "A1:A2")
    assert "S!A1: expected 3, found a formula" in score.feedback
    assert "S!A2: expected 4, found an empty cell" in score.feedback

    cells = {f"A{row}": "x" * 500 for row in range(1, 101)}
    score = judged({"S": cells}, {"S": {}}, "A1:A100")
    assert score.feedback.splitlines()[-1] == "and 88 more"
    assert len(score.feedback) < 2000


def test_what_was_left_instead_is_named(tmp_path: Path) -> None:
    golden = book(tmp_path / "golden.xlsx", {"S": {"A1": 1}})
    (tmp_path / "produced").mkdir()
    output = str(tmp_path / "produced" / "output.xlsx")
    assert compare(golden, output, answer_cells("A1")).hard == 0.0
    book(tmp_path / "produced" / "result.xlsx", {"S": {"A1": 1}})
    score = compare(golden, output, answer_cells("A1"))
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert "only result.xlsx" in score.feedback


def test_merged_cells_and_their_empty_rest(tmp_path: Path) -> None:
    golden = book(tmp_path / "golden.xlsx", {"S": {"A1": "head"}})
    merged = load_workbook(golden)
    merged["S"].merge_cells("A1:C1")
    merged.save(tmp_path / "output.xlsx")
    assert compare(golden, str(tmp_path / "output.xlsx"), answer_cells("A1:C1")).hard == 1.0
