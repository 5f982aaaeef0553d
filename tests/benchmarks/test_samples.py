"""The samples of the benchmarks as data: whole, small, and each item can be answered right and wrong."""

from collections.abc import Sequence
from functools import cache

import pytest

from local.standin.answering import agrees, words_for
from local.standin.known_items import KnownItem, of_benchmark
from skillopt_airflow import benchmarks

MAX_BYTES = 20_000_000
NAMES = benchmarks.names()
BY_DEEDS = {"alfworld", "spreadsheetbench", "swebench"}
"""Benchmarks whose items are not answered by words."""


@cache
def known(name: str) -> Sequence[KnownItem]:
    return [*of_benchmark(name)]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_small_and_has_no_item_twice(name: str) -> None:
    item_ids = [one.item.id for one in known(name)]
    assert len(item_ids) == len(set(item_ids)) >= 24
    files = [path for path in (benchmarks.folder(name) / "sample").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_each_file_of_an_item_is_there(name: str) -> None:
    for one in known(name)[:40]:
        assert all(one.files(one.item.files).values())
        assert all(one.files(one.item.reference_files).values())


@pytest.mark.parametrize("name", sorted({*NAMES} - BY_DEEDS))
def test_a_right_answer_scores_1_and_a_wrong_one_less(name: str) -> None:
    for one in known(name):
        assert agrees(one, words_for(one, right=True)), one.item.id
        assert not agrees(one, words_for(one, right=False)), one.item.id
