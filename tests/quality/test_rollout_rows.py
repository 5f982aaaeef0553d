"""The suite of stored rollouts: each kind of broken row is named."""

from typing import Any

import pytest

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.quality.rollout_rows import check_rollouts

ITEMS = ("a", "b", "c")


def row(item_id: str, status: Any = "ok", hard: float | None = 1.0, soft: float | None = 0.5) -> dict[str, Any]:
    return {"item_id": item_id, "status": status, "hard": hard, "soft": soft}


def failed(item_id: str, status: str = "timeout", **scores: Any) -> dict[str, Any]:
    return row(item_id, status, **({"hard": None, "soft": None} | scores))


GOOD = [row("a"), row("b", "truncated", hard=0.0, soft=0.0), failed("c")]


def test_good_rows_pass_also_after_a_failure_that_was_tried_again() -> None:
    again = [failed("c"), row("c")]
    report = check_rollouts("night", {"champion": [*GOOD, *again], "seed": [failed("a")], "previous": []}, ITEMS)
    report.raise_for_failures()
    assert report.rows == {"champion": 5, "seed": 1, "previous": 0}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("broken", "column", "problem"),
    [
        ([failed("a", "melted")], "status", "the status is none of"),
        ([{**failed("a"), "status": None}], "status", "the status is missing"),
        ([row("zebra")], "id", "the item is none of"),
        ([row("a", hard=-0.1)], "hard", "the hard score is not between"),
        ([row("a", soft=float("inf"))], "soft", "the soft score is not between"),
        ([row("a", "truncated", hard=None)], "hard", "the hard score is missing"),
        ([row("a", soft=float("nan"))], "soft", "the soft score is missing"),
        ([failed("a", hard=1.0)], "hard", "there is a hard score"),
        ([failed("a", soft=0.0)], "soft", "there is a soft score"),
    ],
)
def test_a_broken_row_is_named(broken: list[dict[str, Any]], column: str, problem: str) -> None:
    report = check_rollouts("night", {"champion": GOOD[1:], "seed": [*GOOD[1:], *broken]}, ITEMS)
    missed = [result for result in report.expectations if not result.success]
    assert {(result.column, where.split, where.row, where.id) for result in missed for where in result.failing} == {
        (column, "seed", 3, broken[0]["item_id"])
    }
    with pytest.raises(DataError, match=rf"^night: these rollouts cannot be used: {problem}.* in seed row 3 \(id "):
        report.raise_for_failures()


@pytest.mark.nightly
def test_a_second_score_of_an_item_is_named_but_not_that_of_another_skill_or_draw() -> None:
    assert check_rollouts("night", {"champion, draw 0": GOOD, "champion, draw 1": GOOD}, ITEMS).success
    for second in (row("a", hard=0.0), row("a", "truncated")):
        report = check_rollouts("night", {"champion": [*GOOD, second]}, ITEMS)
        with pytest.raises(DataError, match=r"champion row 1 \(id a\), champion row 4 \(id a\)$"):
            report.raise_for_failures()
