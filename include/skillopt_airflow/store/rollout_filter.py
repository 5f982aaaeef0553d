"""Listed rollouts filtered, sorted, counted and paged.

A list of many is never copied: what is shown of it are places of rows, and only those of a page become objects.
"""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from skillopt_airflow.core.item_scores import Metric
from skillopt_airflow.core.types import Status

Outcome = Literal["all", "success", "failure", "no_score"]
"""success is a hard score of 1, failure one below it."""
Change = Literal["won", "lost", "tied", "flipped"]
"""Of a skill against another on an item: a higher, lower or equal score; flipped is a success of one of the two."""
Order = Literal["item_id", "score", "other", "difference", "status", "tokens", "seconds"]
CHANGES: tuple[Change, ...] = get_args(Change)


class ListedRollout(NamedTuple):
    """A row of the page."""

    item_id: str
    mark: str
    """Beginning of the item's fingerprint."""
    status: str
    error: str
    hard: float | None
    soft: float | None
    score: float | None
    """The metric that a gate compares."""
    tokens: int
    """Read and written."""
    seconds: float
    task_types: str
    """JSON list."""
    other_status: str | None
    """None, like all of the other skill, where there is no other, or it has no rollout of the item."""
    other_score: float | None
    difference: float | None
    """The score less the other skill's."""

    @property
    def types(self) -> list[str]:
        """Return the types of task of the item."""
        return [*json.loads(self.task_types)]


class Counts(NamedTuple):
    """A listing in numbers of items."""

    items: int
    successes: int
    failures: int
    statuses: Mapping[str, int]
    changes: Mapping[str, int]
    """By Change; empty without another skill."""


def scored_by(rows: pa.Table, metric: Metric, mixed_weight: float) -> pa.Table:
    """Return the rows with the `score` that a gate compares."""
    weight = {"hard": 0.0, "soft": 1.0, "mixed": mixed_weight}[metric]
    score = pc.add(pc.multiply(rows["hard"], 1.0 - weight), pc.multiply(rows["soft"], weight))
    return rows.append_column("score", score)


def typed_by(rows: pa.Table, items: pa.Table | None) -> pa.Table:
    """Return the rows with the `task_types` of their items, a JSON list each."""
    if items is None:
        return rows.append_column("task_types", pa.repeat("[]", len(rows)))
    places = pc.index_in(rows["item_id"], value_set=items["id"])
    return rows.append_column("task_types", pc.fill_null(items["task_types"].take(places), "[]"))


def beside(rows: pa.Table, other: pa.Table | None) -> pa.Table:
    """Return the rows with status and score of another skill on the very same items, and the difference."""
    if other is None:
        texts, numbers = (pa.nulls(len(rows), kind) for kind in (pa.string(), pa.float64()))
        columns = {"other_status": texts, "other_hard": numbers, "other_score": numbers, "difference": numbers}
    else:
        places = pc.index_in(rows["item_id"], value_set=other["item_id"])
        same = pc.equal(other["mark"].take(places), rows["mark"])
        places = pc.if_else(same, places, pa.scalar(None, pa.int32()))
        status, hard, score = (other[name].take(places) for name in ("status", "hard", "score"))
        difference = pc.subtract(rows["score"], score)
        columns = {"other_status": status, "other_hard": hard, "other_score": score, "difference": difference}
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows


def filtered(
    rows: pa.Table, show: Outcome | Change = "all", status: Status | None = None, task_type: str = "", text: str = ""
) -> pa.Array:
    """Return the places of the rows that are shown, in their order.

    Args:
        rows: of all rollouts.
        show: those of an outcome, or of a change against another skill.
        status: any, if it is None.
        task_type: any, if it is empty.
        text: in the item's id or the error, in any case of letters.
    """
    masks = [_shown(rows, show)]
    if status is not None:
        masks.append(pc.equal(rows["status"], status.value))
    if task_type:
        having = [texts for texts in pc.unique(rows["task_types"]).to_pylist() if task_type in json.loads(texts)]
        masks.append(pc.is_in(rows["task_types"], value_set=pa.array(having, pa.string())))
    if text:
        named, told = (pc.match_substring(rows[name], text, ignore_case=True) for name in ("item_id", "error"))
        masks.append(pc.or_(named, told))
    return pc.indices_nonzero(reduce(pc.and_, (pc.fill_null(mask, False) for mask in masks)))


def sorted_by(rows: pa.Table, places: pa.Array, order: Order, *, descending: bool) -> pa.Array:
    """Return places of rows in another order; those without a value come last, equal ones as they were."""
    values = rows["other_score" if order == "other" else order].take(places)
    direction = "descending" if descending else "ascending"
    # By name, since a sort of a bare array is not a stable one.
    by = [("value", direction, "at_end")]
    return places.take(pc.sort_indices(pa.table({"value": values}), sort_keys=by))


def page(rows: pa.Table, places: pa.Array) -> list[ListedRollout]:
    """Return the rows at some places."""
    found = rows.take(places)
    columns = (found[name].to_pylist() for name in ListedRollout._fields)
    return [ListedRollout(*row) for row in zip(*columns, strict=True)]


def counts(rows: pa.Table) -> Counts:
    """Count the rows by what can be filtered."""

    def count(mask: Any) -> int:
        return int(pc.sum(pc.fill_null(mask, False)).as_py() or 0)

    found = {one["values"]: one["counts"] for one in pc.value_counts(rows["status"]).to_pylist()}
    return Counts(
        items=len(rows),
        successes=count(_shown(rows, "success")),
        failures=count(_shown(rows, "failure")),
        statuses=dict(sorted(found.items(), key=lambda one: (-one[1], one[0]))),
        changes={change: count(_shown(rows, change)) for change in CHANGES},
    )


def task_types(rows: pa.Table) -> list[str]:
    """Return the types of task that rows have, sorted."""
    return sorted({name for texts in pc.unique(rows["task_types"]).to_pylist() for name in json.loads(texts)})


def _shown(rows: pa.Table, show: Outcome | Change) -> pa.ChunkedArray:
    """Return which rows are shown; null counts as no."""
    success, difference = pc.equal(rows["hard"], 1.0), rows["difference"]
    match show:
        case "success":
            return success
        case "failure":
            return pc.invert(success)
        case "no_score":
            return pc.is_null(rows["hard"])
        case "won":
            return pc.greater(difference, 0.0)
        case "lost":
            return pc.less(difference, 0.0)
        case "tied":
            return pc.equal(difference, 0.0)
        case "flipped":
            return pc.xor(success, pc.equal(rows["other_hard"], 1.0))
        case "all":
            return pc.is_valid(rows["item_id"])
