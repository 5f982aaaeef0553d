import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from include.core.errors import DataError
from include.quality.report import QualityReport
from include.quality.sizes import Need
from include.quality.splits import check_splits

TEXTS, LISTS = ("question", "context"), ("answers",)


def identity(record: Mapping[str, Any]) -> str:
    name = record.get("id")
    if not isinstance(name, str) or not name:
        raise DataError(f"id: got {name!r}")
    return name


def record(name: str, **changes: Any) -> dict[str, Any]:
    return {"id": name, "question": "q", "context": "c", "answers": ["a"]} | changes


def check(splits: Mapping[str, Sequence[dict[str, Any]]], needs: Sequence[Need] = ()) -> QualityReport:
    return check_splits("data/x.json", splits, identity, TEXTS, LISTS, needs)


def failing(report: QualityReport) -> set[tuple[str | None, str, int, str | None]]:
    return {
        (result.column, row.split, row.row, row.id)
        for result in report.expectations
        for row in result.failing
        if not result.success
    }


def good(**changes: Any) -> dict[str, list[dict[str, Any]]]:
    return {"train": [record("a"), record("b")], "val": [record("c")], "test": [record("d")]} | changes


def test_good_records_pass_and_the_report_is_json() -> None:
    report = check(good(train=[record("a", extra={"deep": [1]}), record("b", extra=None)]))
    report.raise_for_failures()
    assert report.success
    assert report.rows == {"train": 2, "val": 1, "test": 1}
    assert QualityReport.model_validate_json(report.model_dump_json()) == report
    assert {result.expectation for result in report.expectations} >= {
        "expect_column_to_exist",
        "expect_column_values_to_be_unique",
        "expect_table_row_count_to_be_between",
    }


def test_an_id_that_is_used_twice_is_named_within_and_across_splits() -> None:
    report = check(good(train=[record("a"), record("b"), record("a")], test=[record("b")]))
    assert failing(report) == {
        ("id", "train", 1, "a"),
        ("id", "train", 3, "a"),
        ("id", "train", 2, "b"),
        ("id", "test", 1, "b"),
    }
    with pytest.raises(DataError, match=r"the same id is used more than once in train row 1 \(id a\), "):
        report.raise_for_failures()


@pytest.mark.parametrize("value", [None, "", " \n", 3, ["q"], {"q": 1}])
@pytest.mark.parametrize("column", ["question", "context"])
def test_a_text_that_is_none_is_named(column: str, value: Any) -> None:
    report = check(good(val=[record("c"), record("e", **{column: value})]))
    assert failing(report) == {(column, "val", 2, "e")}
    with pytest.raises(DataError, match=rf"{column} is missing, blank or not a text in val row 2 \(id e\)"):
        report.raise_for_failures()


@pytest.mark.parametrize("value", [None, [], "a", [""], ["a", 3], {"a": 1}])
def test_a_reference_that_is_none_is_named(value: Any) -> None:
    report = check(good(test=[record("d", answers=value)]))
    assert failing(report) == {("answers", "test", 1, "d")}
    with pytest.raises(DataError, match=r"answers is .* in test row 1 \(id d\)$"):
        report.raise_for_failures()


@pytest.mark.parametrize("value", [None, "", 7, ["list"]])
def test_an_id_that_is_none_is_named_by_its_row_with_the_reason(value: Any) -> None:
    report = check(good(val=[record("c"), record("x", id=value), record("y", id=value)]))
    assert failing(report) == {("id", "val", 2, None), ("id", "val", 3, None)}
    with pytest.raises(DataError) as raised:
        report.raise_for_failures()
    assert f"no id can be told (id: got {value!r}) in val row 2 (id None), val row 3 (id None)" in str(raised.value)


def test_an_identity_may_come_from_any_columns() -> None:
    rows = [{"month": "1", "no": 1, "id": "same"}, {"month": "1", "no": 2, "id": "same"}, {"month": "2", "no": 1}]
    splits = {"train": rows, "val": [{"month": "1", "no": 2, "split": "?", "row": "?"}]}
    report = check_splits("x", splits, lambda row: f"{row['month']}:{row['no']}", ("month", "id", "split"), ())
    assert failing(report) == {
        ("id", "train", 2, "1:2"),
        ("id", "val", 1, "1:2"),
        # The column `id` is missing there, and nowhere but in val is there a column `split`.
        ("id", "train", 3, "2:1"),
        *{("split", "train", row, name) for row, name in ((1, "1:1"), (2, "1:2"), (3, "2:1"))},
    }


def test_a_column_that_no_record_has_is_named_once() -> None:
    without = {
        split: [{"id": r["id"], "question": "q", "context": "c"} for r in rows] for split, rows in good().items()
    }
    report = check(without)
    with pytest.raises(DataError, match=r"cannot be used: no record has the column answers$"):
        report.raise_for_failures()


def test_a_column_that_one_record_lacks_is_named_with_its_row() -> None:
    lacking = record("e")
    del lacking["answers"]
    assert failing(check(good(val=[record("c"), lacking]))) == {("answers", "val", 2, "e")}


def test_a_split_without_rows_is_named() -> None:
    with pytest.raises(DataError, match=r"cannot be used: 0 rows in split val, at least 1 needed$"):
        check(good(val=[])).raise_for_failures()


def test_no_rows_at_all() -> None:
    report = check({"train": [], "val": [], "test": []})
    assert not report.success
    with pytest.raises(
        DataError, match=r"0 rows in split train, at least 1 needed; .*no record has the column context"
    ):
        report.raise_for_failures()


def test_the_sentence_names_five_rows_and_the_report_all() -> None:
    report = check(good(val=[record(str(number), question="") for number in range(20)]))
    assert len(failing(report)) == 20
    with pytest.raises(DataError, match=r"val row 5 \(id 4\) and 15 more rows$"):
        report.raise_for_failures()


def test_the_check_prints_nothing_and_opens_no_network() -> None:
    program = """
import socket, sys
def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise RuntimeError(f"{event} {arguments}")
sys.addaudithook(refuse)
from include.quality.splits import check_splits
assert "great_expectations" not in sys.modules
report = check_splits("x", {"train": [{"id": "a"}, {"id": "a"}]}, lambda record: record["id"], [], [])
assert "great_expectations" in sys.modules
sys.exit(7 if not report.success else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_the_report_is_plain_json() -> None:
    assert json.loads(json.dumps(check(good(val=[])).model_dump(mode="json")))["success"] is False
