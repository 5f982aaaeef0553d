import random
from collections.abc import Sequence
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.core.types import Rollout, Score, Split
from skillopt_airflow.store import rollout_browser
from skillopt_airflow.store.parquet import to_parquet
from skillopt_airflow.store.parts import parts_of
from skillopt_airflow.store.rollout_browser import MARK, RolloutBrowser, counting
from skillopt_airflow.store.rollout_filter import beside, filtered, scored_by, typed_by
from skillopt_airflow.store.rollout_partitions import Partition
from skillopt_airflow.store.rollout_table import RolloutTable
from tests.store.stored_rollouts import SKILL, Try, put, rollout_key
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
        assert [row.settings_sha256 for row in browser.tries(few, "a")] == ["1" * 64]

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
    found = browser.tries(rollout_key(), "a")
    assert [row.rollout for row in found] == [tries[1].rollout, tries[2].rollout, tries[0].rollout]
    counted = counting(found, "run")
    assert counted.rollout == tries[1].rollout
    assert counting([found[2]], "another") is None
    assert counting([found[2]]) == found[2]
    assert browser.tries(rollout_key(), "A") == []
    assert browser.item_id(rollout_key(), Try("b").ref.fingerprint[:MARK]) == "b"
    assert browser.item_id(rollout_key(), "0" * MARK) is None


def test_a_page_of_a_list_reads_no_text_and_an_item_one_row_group(
    store: LocalStore, browser: RolloutBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = random.Random(1)
    tries = [Try(f"{number:03d}", said=said.randbytes(1000).hex()) for number in range(400)]
    put(store, rollout_key(), [tries], group_bytes=100_000)
    [part] = parts_of(store, "")
    size = store.size(part)
    read = Mock(side_effect=store.get_range)
    monkeypatch.setattr(store, "get_range", read)

    def fetched() -> int:
        return sum(stop - start for _, start, stop in (call.args for call in read.mock_calls))

    assert len(browser.listing(rollout_key()).rows) == 400
    assert fetched() < size / 10
    read.reset_mock()
    assert len(browser.tries(rollout_key(), "123")) == 1
    assert 0 < fetched() < size / 4


def test_a_search_finds_what_was_said_in_any_case_but_not_the_skill(store: LocalStore, browser: RolloutBrowser) -> None:
    said = ["Paris, of course", "ÄPFEL (X.Y)", "pARIs ΣΊΣΥΦΟΣ", "aab A*B"]
    rows = [Try(name, said=text) for name, text in zip("abcd", said, strict=True)]
    put(store, rollout_key(), [rows[:2], rows[2:]])
    listing = browser.listing(rollout_key())

    def search(text: str, places: Sequence[int] = range(4), most: int = ALL) -> tuple[list[int], int]:
        found = browser.saying(listing, pa.array(places, pa.uint64()), text, most)
        return found.places.to_pylist(), found.searched

    assert search("paris") == ([0, 2], 4)
    assert search("PARIS", [1, 2]) == ([2], 2)
    assert search("the skill") == ([], 4)
    assert search("", []) == ([], 0)
    assert search("paris", most=1) == ([0], 1)
    # Letters in all their forms, and signs as they are.
    found = [search(text)[0] for text in ("σίσυφος", "äpfel (x.", "pfel .x", "a*b")]
    assert found == [[2], [1], [], [3]]


def test_parts_that_are_merged_during_a_search_are_told(store: LocalStore, browser: RolloutBrowser) -> None:
    put(store, rollout_key(), [[Try("a")]])
    listing = browser.listing(rollout_key())
    store.delete(listing.parts[0])
    with pytest.raises(StoreUnavailable, match="merged into larger files"):
        browser.saying(listing, pa.array([0], pa.uint64()), "a", ALL)


def test_a_search_finds_answers_and_feedback(store: LocalStore, browser: RolloutBrowser) -> None:
    table = RolloutTable(store, "")
    for name, answer, feedback in (("a", "Sofia", ""), ("b", "", "expected Sofia"), ("c", "", "")):
        one = Try(name)
        trajectory = one.rollout.trajectory.model_copy(update={"answer": answer})
        rollout = Rollout(trajectory=trajectory, score=Score(hard=1, soft=1, feedback=feedback))
        table.append(rollout_key(), "run", [(one.ref, rollout)])
    listing = browser.listing(rollout_key())
    assert browser.saying(listing, pa.array([0, 1, 2], pa.uint64()), "sofia", ALL).places.to_pylist() == [0, 1]


def test_a_part_of_one_row_group_is_read_in_pieces(
    store: LocalStore, browser: RolloutBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_browser, "_ROWS_AT_ONCE", 3)
    tries = [Try(f"{number:02d}", said=f"word{number}") for number in range(20)]
    put(store, rollout_key(), [tries], group_bytes=ALL)
    assert [row.rollout for row in browser.tries(rollout_key(), "13")] == [tries[13].rollout]
    listing = browser.listing(rollout_key())
    found = browser.saying(listing, pa.array(range(20), pa.uint64()), "word1", ALL)
    assert found.places.to_pylist() == [1, *range(10, 20)]


def test_rows_of_parts_that_are_being_merged_are_there_once(store: LocalStore, browser: RolloutBrowser) -> None:
    put(store, rollout_key(), [[Try(f"{part}-{number}") for number in range(3)] for part in range(10)])
    for key in parts_of(store, ""):
        store.put_bytes(key.replace("part-", "part-merged"), store.get_bytes(key))
    assert len(browser.listing(rollout_key()).rows) == 30


def test_nothing_is_stored(browser: RolloutBrowser) -> None:
    listing = browser.listing(rollout_key())
    rows = beside(typed_by(scored_by(listing.rows, "hard", 0.5), None), None)
    assert filtered(rows).to_pylist() == []
    assert browser.variants(PLACE) == []
    assert browser.tries(rollout_key(), "a") == []
