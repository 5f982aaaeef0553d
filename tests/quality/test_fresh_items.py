"""The suite of a night's items: what is broken is named, and what is merely another night passes."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, ItemFile, Split
from skillopt_airflow.quality.fresh_items import (
    MIN_FRESH,
    MIN_REFERENCE,
    TOLERANCE,
    MeasuredItems,
    check_fresh,
    content,
    fingerprint,
    length_of,
    relative_rank,
    tolerance,
)
from skillopt_airflow.quality.quality_report import QualityReport


def item(name: str, question: Any = "", **public: Any) -> Item:
    said = question if question != "" else f"what is {name}"
    return Item(id=name, public={"question": said, **public}, reference={"answers": ["x"]})


SEEN = MeasuredItems(
    {"seen-1": "night 2026-11-20"}, {fingerprint(content(item("old", "asked last night"))): "night 2026-11-20"}
)


def known(count: int = 40, **public: Any) -> list[Item]:
    return [item(f"known-{number}", f"asked {number} before", **public) for number in range(count)]


def fresh(count: int = 30, **public: Any) -> list[Item]:
    return [item(f"fresh-{number}", f"asked {number} later", **public) for number in range(count)]


def check(items: Sequence[Item], reference: Sequence[Item] | None = None) -> QualityReport:
    usual = known() if reference is None else reference
    learned = {Split.TRAIN: usual[:5], Split.VAL: usual[5:10]}
    return check_fresh("fresh/date=2026-11-21", items, learned, usual, SEEN)


def failures(report: QualityReport) -> dict[str, set[tuple[int, str]]]:
    return {
        f"{result.column}: {result.expectation}": {(row.row, row.value) for row in result.failing}
        for result in report.expectations
        if not result.success
    }


def test_new_items_like_the_reference_pass() -> None:
    report = check(fresh())
    report.raise_for_failures()
    assert (report.success, report.rows, report.notes) == (True, {"fresh": 30}, ())
    # Two for what was learned, two for other nights; kinds and lengths of question and answers.
    assert len(report.expectations) == 8


def test_files_tell_items_apart_whose_texts_are_equal() -> None:
    def pictured(name: str, sha256: str) -> Item:
        picture = ItemFile(name="picture-1.png", path=f"{name}.png", sha256=sha256, picture=True)
        return item(name, "what is this?").model_copy(update={"files": (picture,)})

    reference = [pictured(f"known-{number}", f"{number:064}") for number in range(40)]
    check([pictured(f"fresh-{number}", f"{number:064}") for number in range(100, 130)], reference).raise_for_failures()
    again = check([pictured(f"fresh-{number}", f"{number:064}") for number in range(3, 33)], reference)
    assert any(len(rows) == 7 for rows in failures(again).values())


@pytest.mark.parametrize(
    ("added", "where", "problem"),
    [
        ([item("known-3")], "train item known-3", "the same id in"),
        ([item("known-7"), item("known-12")], "val item known-7", "the same id in"),
        ([item("new", "asked 3 before"), item("newer", "asked 12 before")], "train item known-3", "looks the same"),
        ([item("seen-1"), item("seen-2")], "night 2026-11-20", "only once in"),
        ([item("new", "asked last night")], "night 2026-11-20", "looks the same .* only once in"),
    ],
)
def test_an_item_that_was_trained_on_or_measured_is_named_also_under_another_id(
    added: list[Item], where: str, problem: str
) -> None:
    report = check([*fresh(), *added])
    assert failures(report) == {"whole item: expect_column_values_to_be_null": {(31, where)}}
    with pytest.raises(DataError, match=rf"{problem}.* fresh row 31 \(id {added[0].id}\)$"):
        report.raise_for_failures()


def test_choices_in_another_order_are_the_same_item_and_another_question_is_not() -> None:
    adapter = benchmarks.load("livemathematicianbench")
    record = {
        "month": "202602",
        "no": 1,
        "mcq": {
            "question": "which?",
            "correct_choice": {"label": "A", "text": "one"},
            "choices": [{"label": label, "text": text} for label, text in zip("BCDE", "wxyz", strict=True)],
        },
    }
    others = [adapter.item(record | {"no": number}) for number in range(1, 9)]
    assert len({str(other.public) for other in others}) > 1
    assert len({content(other) for other in others}) == 1
    assert content(item("a", choices=["1", "2"])) != content(item("a", choices=["1", "3"]))


@pytest.mark.parametrize(("value", "quoted"), [(7, "7"), (True, "true"), (None, "null"), (["t"], None), ({}, None)])
def test_a_text_that_became_something_else(value: Any, quoted: str | None) -> None:
    broken = [item(f"broken-{number}", value) for number in range(12)]
    report = check([*fresh(20), *broken])
    rows = failures(report)["public.question: expect_column_values_to_be_in_set"]
    assert {row for row, _ in rows} == set(range(21, 33))
    assert quoted is None or {said for _, said in rows} == {quoted}
    with pytest.raises(DataError, match=r"public\.question is .* in fresh row 21 \(id broken-0\), .*7 more"):
        report.raise_for_failures()


def test_a_field_that_is_gone_is_named_and_a_kind_that_is_new_but_rare_passes() -> None:
    rows = failures(check(fresh(), known(context="c" * 50)))
    assert {row for row, _ in rows["public.context: expect_column_values_to_be_in_set"]} == set(range(1, 31))
    assert check([*fresh(30), *(item(f"odd-{number}", [str(number)]) for number in range(6))]).success


@pytest.mark.parametrize(("repeats", "relation"), [(12, "longer"), (1, "shorter")])
def test_texts_of_other_lengths_are_named_with_both_medians(repeats: int, relation: str) -> None:
    usual = [item(f"known-{number}", f"{number:05d}" * 4) for number in range(40)]
    report = check([item(f"fresh-{number}", f"9{number:04d}" * repeats) for number in range(30)], usual)
    named = {(row, f"{5 * repeats} characters") for row in range(1, 31)}
    assert failures(report) == {"public.question: expect_column_mean_to_be_between": named}
    medians = rf"\(median {5 * repeats} characters, 20 in the reference\) in fresh row 1 \(id fresh-0\), "
    with pytest.raises(DataError, match=rf"public\.question is much {relation} .*{medians}"):
        report.raise_for_failures()


def test_only_the_items_that_stand_out_are_named() -> None:
    short = [item(f"short-{number}", f"{number:05d}") for number in range(5)]
    long = [item(f"long-{number}", f"{number:05d}" * 100) for number in range(25)]
    (rows,) = failures(check([*short, *long])).values()
    assert {row for row, _ in rows} == set(range(6, 31))


@pytest.mark.parametrize(
    ("count", "usual", "looked"),
    [(MIN_FRESH - 1, 40, False), (30, MIN_REFERENCE - 1, False), (MIN_FRESH, MIN_REFERENCE, True)],
)
def test_a_small_partition_skips_drift_and_says_so(count: int, usual: int, looked: bool) -> None:
    report = check([item(f"f{number}", "long " * 500 + str(number)) for number in range(count)], known(usual))
    assert report.success is not looked
    said = f"drift was not checked: {count} fresh items and {usual} of the reference"
    assert [note.startswith(said) for note in report.notes] == ([] if looked else [True])


def lognormal(spread: float) -> Callable[[random.Random], int]:
    return lambda source: round(source.lognormvariate(5, spread)) + 1


def mixed(source: random.Random) -> int:
    return source.choice([12, 12, 12, 3000])


def steps(source: random.Random) -> int:
    return source.choice([2, 5])


WORLDS = {
    "narrow": lognormal(0.27),
    "wide": lognormal(0.7),
    "mixed": mixed,
    "steps": steps,
    "rare": lambda source: 10**6 if source.random() < 0.02 else 10,
}


def drifted(usual: Sequence[int], lengths: Sequence[int]) -> bool:
    among = sorted(usual)
    mean = sum(relative_rank(length, among) for length in lengths) / len(lengths)
    return abs(mean - 0.5) > tolerance(len(lengths), len(among))


@pytest.mark.nightly
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("size", "reference"), [(30, 20), (30, 180), (100, 60), (10, 20)])
def test_healthy_partitions_practically_never_drift(world: str, size: int, reference: int) -> None:
    source, draw = random.Random(f"{world}-{size}-{reference}"), WORLDS[world]
    false = 0
    for _ in range(2000):
        usual = [draw(source) for _ in range(reference)]
        false += drifted(usual, [draw(source) for _ in range(size)])
    assert false <= 1


@pytest.mark.parametrize("factor", [3, 1 / 3])
@pytest.mark.parametrize(("size", "reference"), [(30, 60), (30, 180), (100, 60)])
def test_lengths_of_three_times_as_much_or_little_are_found(factor: float, size: int, reference: int) -> None:
    # The spread of SearchQA's contexts is 0.27, that of its questions 0.44, of SpreadsheetBench's instructions 0.50.
    for spread in (0.27, 0.44, 0.5):
        source, draw = random.Random(f"{spread}-{factor}-{size}"), lognormal(spread)
        found = sum(
            drifted([draw(source) for _ in range(reference)], [round(factor * draw(source)) for _ in range(size)])
            for _ in range(200)
        )
        assert found >= 198


@given(st.lists(st.integers(0, 10**7), min_size=1), st.integers(0, 10**7))
def test_a_standing_is_a_share_that_grows_with_the_length(usual: list[int], length: int) -> None:
    among = sorted(usual)
    assert 0 <= relative_rank(length, among) <= relative_rank(2 * length, among) <= 1
    assert relative_rank(length, [length] * 3) == 0.5


@given(st.lists(st.integers(0, 10**6), min_size=20, max_size=60))
def test_the_reference_itself_never_drifts(lengths: list[int]) -> None:
    assert not drifted(lengths, lengths)


@given(st.integers(MIN_FRESH, 10**5), st.integers(MIN_REFERENCE, 10**5))
def test_a_tolerance_leaves_something_to_find(size: int, reference: int) -> None:
    assert TOLERANCE <= tolerance(size, reference) < 0.5


@pytest.mark.parametrize(
    ("value", "length"), [("äöü", 3), (["a", "b"], 9), ({}, 2), (3, None), (None, None), (True, None)]
)
def test_what_has_a_length(value: Any, length: int | None) -> None:
    assert length_of(value) == length
