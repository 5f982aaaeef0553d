import random
from collections.abc import Sequence
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow.core.gate.item_scores import Metric, metric_value
from skillopt_airflow.core.values.types import Rollout, Score, Split, Status
from skillopt_airflow.store.tables.parquet import parts_of, to_parquet
from skillopt_airflow.store.tables.rollout_browser import (
    MARK,
    RolloutBrowser,
    Sort,
    counts,
    filter_rows,
    listed_try,
    page,
    sort_rows,
    task_types,
    with_other,
    with_scores,
    with_task_types,
)
from skillopt_airflow.store.tables.rollout_table import Partition, RolloutTable
from tests.store.stored_rollouts import OTHER, SKILL, Try, put, rollout_key
from tests.training.local_store import LocalStore

PLACE = Partition("searchqa", "openai-chat:org/model", "chat", Split.VAL, SKILL[:12], 0)
ALL = 1 << 30


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


@pytest.fixture
def browser(store: LocalStore) -> RolloutBrowser:
    return RolloutBrowser(store, "")


def ids(table: pa.Table) -> list[str]:
    return list(table["item_id"].to_pylist())


def mark(name: str) -> str:
    return Try(name).ref.fingerprint[:MARK]


def test_rollouts_under_several_settings_are_told_apart(store: LocalStore, browser: RolloutBrowser) -> None:
    few, many = rollout_key(settings="1" * 64), rollout_key(settings="2" * 64)
    put(store, few, [[Try("a", run="run-1")]])
    put(store, many, [[Try("b"), Try("c")], [Try("a", 0.0)]])

    def told_apart() -> None:
        assert [(one.key, one.rows, one.run) for one in browser.variants(PLACE)] == [
            (many, 3, "run"),
            (few, 1, "run-1"),
        ]
        assert ids(browser.listing(few).rows) == ["a"]
        assert browser.listing(many).rows["hard"].to_pylist() == [0.0, 1.0, 1.0]
        assert [row.settings_sha256 for row in browser.tries(few, mark("a"))] == ["1" * 64]

    told_apart()
    parts = parts_of(store, "")
    together = pa.concat_tables([pq.read_table(pa.BufferReader(store.get_bytes(part))) for part in parts])
    for part in parts:
        store.delete(part)
    store.put_bytes(parts[0], to_parquet(together))
    told_apart()


def test_what_a_run_sees_of_the_rollouts_of_all(store: LocalStore, browser: RolloutBrowser) -> None:
    failed = [Try("d", None, error="first"), Try("d", None, run="another", error="last")]
    put(store, rollout_key(), [[Try("a", 0.0, run="another"), Try("a"), Try("b", content="changed"), *failed]])
    refs = [Try("a").ref, Try("b").ref]
    items = pa.table({"id": [ref.id for ref in refs], "fingerprint": [ref.fingerprint for ref in refs]})
    assert ids(browser.listing(rollout_key(), "run", items).rows) == ["a"]
    # The failures of other runs count where no run is named.
    assert browser.listing(rollout_key(), "run").rows["error"].to_pylist() == ["", "", "first"]
    assert browser.listing(rollout_key()).rows["error"].to_pylist() == ["", "", "last"]
    # A run that is alone with its items sees its own rollouts.
    assert browser.listing(rollout_key(), "run", alone=True).rows["hard"].to_pylist() == [1.0, 1.0, None]


def test_an_item_is_read_with_all_its_tries(store: LocalStore, browser: RolloutBrowser) -> None:
    tries = [Try("a", None, said="nothing"), Try("a", 0.5, said="half"), Try("a", 1.0, said="again", run="another")]
    put(store, rollout_key(), [[Try("b"), tries[0]], [tries[1], Try("c")], [tries[2]]])
    found = browser.tries(rollout_key(), mark("a"))
    assert [row.rollout for row in found] == [tries[1].rollout, tries[2].rollout, tries[0].rollout]
    counted = listed_try(found, "run")
    assert counted.rollout == tries[1].rollout
    assert listed_try([found[2]], "another") is None
    assert listed_try([found[2]]) == found[2]
    assert browser.tries(rollout_key(), "0" * MARK) == []


def test_a_page_of_a_list_reads_no_text_and_an_item_one_row_group(
    store: LocalStore, browser: RolloutBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = random.Random(1)
    tries = [Try(f"{number:03d}", said=said.randbytes(1000).hex()) for number in range(400)]
    put(store, rollout_key(), [tries], group_bytes=100_000)
    [part] = parts_of(store, "")
    size = len(store.get_bytes(part))
    read = Mock(side_effect=store.get_range)
    monkeypatch.setattr(store, "get_range", read)

    def fetched() -> int:
        return sum(stop - start for _, start, stop in (call.args for call in read.mock_calls))

    assert len(browser.listing(rollout_key()).rows) == 400
    assert fetched() < size / 10
    read.reset_mock()
    assert len(browser.tries(rollout_key(), mark("123"))) == 1
    assert 0 < fetched() < size / 4


def test_a_search_finds_what_was_said_in_any_case_but_not_the_skill(store: LocalStore, browser: RolloutBrowser) -> None:
    said = ["Paris, of course", "ÄPFEL (X.Y)", "pARIs ΣΊΣΥΦΟΣ", "aab A*B"]
    rows = [Try(name, said=text) for name, text in zip("abcd", said, strict=True)]
    put(store, rollout_key(), [rows[:2], rows[2:]])
    listing = browser.listing(rollout_key())

    def search(text: str, places: Sequence[int] = range(4), most: int = ALL) -> tuple[list[int], int]:
        found, searched = browser.search(listing, pa.array(places, pa.uint64()), text, most)
        return found.to_pylist(), searched

    assert search("paris") == ([0, 2], 4)
    assert search("PARIS", [1, 2]) == ([2], 2)
    assert search("the skill") == ([], 4)
    assert search("", []) == ([], 0)
    assert search("paris", most=1) == ([0], 1)
    # Letters in all their forms, and signs as they are.
    found = [search(text)[0] for text in ("σίσυφος", "äpfel (x.", "pfel .x", "a*b")]
    assert found == [[2], [1], [], [3]]


def test_a_search_finds_answers_and_feedback(store: LocalStore, browser: RolloutBrowser) -> None:
    table = RolloutTable(store, "")
    for name, answer, feedback in (("a", "Sofia", ""), ("b", "", "expected Sofia"), ("c", "", "")):
        one = Try(name)
        trajectory = one.rollout.trajectory.model_copy(update={"answer": answer})
        rollout = Rollout(trajectory=trajectory, score=Score(hard=1, soft=1, feedback=feedback))
        table.append(rollout_key(), "run", [(one.ref, rollout)])
    listing = browser.listing(rollout_key())
    assert browser.search(listing, pa.array([0, 1, 2], pa.uint64()), "sofia", ALL)[0].to_pylist() == [0, 1]


def test_rows_in_the_middle_of_a_row_group_are_found(store: LocalStore, browser: RolloutBrowser) -> None:
    tries = [Try(f"{number:02d}", said=f"word{number}") for number in range(20)]
    put(store, rollout_key(), [tries], group_bytes=ALL)
    assert [row.rollout for row in browser.tries(rollout_key(), mark("13"))] == [tries[13].rollout]
    listing = browser.listing(rollout_key())
    found, _ = browser.search(listing, pa.array(range(20), pa.uint64()), "word1", ALL)
    assert found.to_pylist() == [1, *range(10, 20)]


def test_rows_of_parts_that_are_being_merged_are_there_once(store: LocalStore, browser: RolloutBrowser) -> None:
    put(store, rollout_key(), [[Try(f"{part}-{number}") for number in range(3)] for part in range(10)])
    for key in parts_of(store, ""):
        store.put_bytes(key.replace("part-", "part-merged"), store.get_bytes(key))
    assert len(browser.listing(rollout_key()).rows) == 30


def test_nothing_is_stored(browser: RolloutBrowser) -> None:
    listing = browser.listing(rollout_key())
    rows = with_other(with_task_types(with_scores(listing.rows, "hard", 0.5), None), None)
    assert filter_rows(rows).to_pylist() == []
    assert browser.variants(PLACE) == []
    assert browser.tries(rollout_key(), mark("a")) == []


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


def counted(parts: Sequence[Sequence[Try]], run: str) -> dict[str, Try]:
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
    sort: Sort,
    descending: bool,
) -> None:
    store = LocalStore()
    put(store, rollout_key(), left)
    put(store, rollout_key(OTHER), right or [])
    browser = RolloutBrowser(store, "")

    def listed(skill: str) -> pa.Table:
        return with_scores(browser.listing(rollout_key(skill), "run").rows, metric, WEIGHT)

    rows = with_other(with_task_types(listed("a" * 64), None), None if right is None else listed(OTHER))
    places = sort_rows(rows, filter_rows(rows, show, status, text=text), sort, descending=descending)
    found = page(rows, places)

    others = {} if right is None else counted(right, "run")
    expected = [
        (one, others.get(item))
        for item, one in sorted(counted(left, "run").items())
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


def rows_of(*tries: Try) -> pa.Table:
    store = LocalStore()
    put(store, rollout_key(), [tries])
    rows = with_scores(RolloutBrowser(store, "").listing(rollout_key()).rows, "hard", WEIGHT)
    return with_other(with_task_types(rows, None), None)


def test_equal_rows_keep_the_order_of_their_ids() -> None:
    rows = rows_of(*(Try(f"{number:02d}", hard=number % 2) for number in range(40)))
    for descending in (False, True):
        places = sort_rows(rows, filter_rows(rows), "score", descending=descending)
        found = [row.item_id for row in page(rows, places)]
        assert found == sorted(found[:20]) + sorted(found[20:])


def test_items_of_a_type_and_how_many_there_are_of_each_kind() -> None:
    rows = rows_of(Try("a"), Try("b", 0.5), Try("c", None, status=Status.REFUSED))
    items = pa.table({"id": ["c", "a", "d"], "task_types": ['["x","y"]', '["y"]', '["z"]']})
    rows = with_other(with_task_types(rows.drop_columns(["task_types", *OF_OTHER]), items), rows)
    assert task_types(rows) == ["x", "y"]
    places = filter_rows(rows, task_type="x")
    assert [(row.item_id, row.types) for row in page(rows, places)] == [("c", ["x", "y"])]
    found = counts(rows)
    assert (found.items, found.successes, found.failures) == (3, 1, 1)
    assert found.statuses == {"ok": 2, "refused": 1}
    assert found.changes == {"won": 0, "lost": 0, "tied": 2, "flipped": 0}
    assert counts(rows_of()).items == 0


OF_OTHER = ["other_status", "other_hard", "other_score", "difference"]


def test_another_content_of_an_item_is_no_rollout_beside_it() -> None:
    rows, other = (rows_of(Try("a", content=content)).drop_columns(OF_OTHER) for content in ("", "changed"))
    [row] = page(with_other(rows, other), pa.array([0]))
    assert (row.score, row.other_score, row.difference) == (1.0, None, None)
