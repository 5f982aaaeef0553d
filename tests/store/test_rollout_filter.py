"""Lists of rollouts against a plain filter in Python."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow.core.item_scores import Metric, metric_value
from skillopt_airflow.core.types import Score, Status
from skillopt_airflow.store import rollout_browser as filters
from skillopt_airflow.store.rollout_browser import RolloutBrowser
from tests.store.stored_rollouts import OTHER, Try, put, rollout_key
from tests.training.local_store import LocalStore

# Letters whose other case is one letter, and what a pattern would take for something else.
LETTERS = "abAB%_.*\\é"
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
METRICS: list[Metric] = ["hard", "soft", "mixed"]
SHOWN = ["all", "success", "failure", "no_score", "won", "lost", "tied", "flipped"]
WEIGHT = 0.25


@st.composite
def tries(draw: st.DrawFn) -> Try:
    scored = draw(st.booleans())
    failures = st.sampled_from([Status.TIMEOUT, Status.MODEL_ERROR])
    return Try(
        item=draw(st.text(LETTERS, min_size=1, max_size=2)),
        hard=draw(SCORES) if scored else None,
        soft=draw(SCORES),
        run=draw(st.sampled_from(["run", "another"])),
        error=draw(st.text(LETTERS, max_size=3)),
        tokens=draw(st.integers(0, 3)),
        seconds=draw(st.sampled_from([0.0, 0.5, 2.0])),
        status=draw(st.sampled_from([Status.OK, Status.TRUNCATED]) if scored else failures),
    )


PARTS = st.lists(st.lists(tries(), min_size=1, max_size=6), max_size=3)


def counting(parts: Sequence[Sequence[Try]], run: str) -> dict[str, Try]:
    found: dict[str, Try] = {}
    for one in (one for part in parts for one in part):
        before = found.get(one.item)
        may_count = one.hard is not None or one.run == run
        if may_count and (before is None or before.hard is None):
            found[one.item] = one
    return found


def value(one: Try | None, metric: Metric) -> float | None:
    score = None if one is None else one.rollout.score
    return None if score is None else metric_value(score, metric, WEIGHT)


def shows(show: str, one: Try, other: Try | None, metric: Metric) -> bool:
    mine, theirs = value(one, metric), value(other, metric)
    if show in ("won", "lost", "tied", "flipped"):
        if mine is None or theirs is None or other is None:
            return False
        if show == "flipped":
            return (one.hard == 1) != (other.hard == 1)
        return {"won": mine > theirs, "lost": mine < theirs, "tied": mine == theirs}[show]
    kinds = {"success": one.hard == 1, "failure": one.hard is not None and one.hard < 1, "no_score": one.hard is None}
    return show == "all" or kinds[show]


@pytest.mark.nightly
@settings(max_examples=80)
@given(
    left=PARTS,
    right=st.none() | PARTS,
    metric=st.sampled_from(METRICS),
    show=st.sampled_from(SHOWN),
    status=st.none() | st.sampled_from([Status.OK, Status.TIMEOUT]),
    text=st.text(LETTERS, max_size=2),
    sort=st.sampled_from(["item_id", "score", "other", "difference", "status", "tokens", "seconds"]),
    descending=st.booleans(),
)
def test_a_list_is_what_a_plain_filter_finds(
    left: list[list[Try]],
    right: list[list[Try]] | None,
    metric: Metric,
    show: str,
    status: Status | None,
    text: str,
    sort: filters.Sort,
    descending: bool,
) -> None:
    store = LocalStore()
    put(store, rollout_key(), left)
    put(store, rollout_key(OTHER), right or [])
    browser = RolloutBrowser(store, "")

    def listed(skill: str) -> filters.pa.Table:
        return filters.scored_by(browser.listing(rollout_key(skill), "run").rows, metric, WEIGHT)

    rows = filters.beside(filters.typed_by(listed("a" * 64), None), None if right is None else listed(OTHER))
    places = filters.sorted_by(rows, filters.filtered(rows, show, status, text=text), sort, descending=descending)
    found = filters.page(rows, places)

    others = {} if right is None else counting(right, "run")
    expected = [
        (one, others.get(item))
        for item, one in sorted(counting(left, "run").items())
        if shows(show, one, others.get(item), metric)
        and status in (None, one.ended)
        and (text.lower() in item.lower() or text.lower() in one.error.lower())
    ]
    assert [row.item_id for row in sorted(found)] == [one.item for one, _ in expected]
    for row, (one, other) in zip(sorted(found), expected, strict=True):
        score = one.rollout.score or Score.model_construct(hard=None, soft=None)
        assert (row.status, row.error, row.hard) == (one.ended, one.error, score.hard)
        assert (row.tokens, row.seconds, row.types) == (one.tokens, one.seconds, [])
        assert (row.score, row.other_score) == (value(one, metric), value(other, metric))
        assert row.other_status == (None if other is None else other.ended)
    ordered = [getattr(row, "other_score" if sort == "other" else sort) for row in found]
    known = [one for one in ordered if one is not None]
    assert ordered == [*sorted(known, reverse=descending), *[None] * (len(ordered) - len(known))]


def rows_of(*tries: Try) -> filters.pa.Table:
    store = LocalStore()
    put(store, rollout_key(), [tries])
    rows = filters.scored_by(RolloutBrowser(store, "").listing(rollout_key()).rows, "hard", WEIGHT)
    return filters.beside(filters.typed_by(rows, None), None)


def test_equal_rows_keep_the_order_of_their_ids() -> None:
    rows = rows_of(*(Try(f"{number:02d}", hard=number % 2) for number in range(40)))
    for descending in (False, True):
        places = filters.sorted_by(rows, filters.filtered(rows), "score", descending=descending)
        found = [row.item_id for row in filters.page(rows, places)]
        assert found == sorted(found[:20]) + sorted(found[20:])


def test_items_of_a_type_and_how_many_there_are_of_each_kind() -> None:
    rows = rows_of(Try("a"), Try("b", 0.5), Try("c", None, status=Status.REFUSED))
    items = filters.pa.table({"id": ["c", "a", "d"], "task_types": ['["x","y"]', '["y"]', '["z"]']})
    rows = filters.beside(filters.typed_by(rows.drop_columns(["task_types", *OF_OTHER]), items), rows)
    assert filters.task_types(rows) == ["x", "y"]
    places = filters.filtered(rows, task_type="x")
    assert [(row.item_id, row.types) for row in filters.page(rows, places)] == [("c", ["x", "y"])]
    counts = filters.counts(rows)
    assert (counts.items, counts.successes, counts.failures) == (3, 1, 1)
    assert counts.statuses == {"ok": 2, "refused": 1}
    assert counts.changes == {"won": 0, "lost": 0, "tied": 2, "flipped": 0}
    assert filters.counts(rows_of()).items == 0


OF_OTHER = ["other_status", "other_hard", "other_score", "difference"]


def test_another_content_of_an_item_is_no_rollout_beside_it() -> None:
    rows, other = (rows_of(Try("a", content=content)).drop_columns(OF_OTHER) for content in ("", "changed"))
    [row] = filters.page(filters.beside(rows, other), filters.pa.array([0]))
    assert (row.score, row.other_score, row.difference) == (1.0, None, None)
