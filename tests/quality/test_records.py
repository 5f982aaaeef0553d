import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.policies import Action, Evidence, policy_of
from skillopt_airflow.core.values.types import DATA_SPLITS, Split, canonical_json
from skillopt_airflow.quality.quality_report import CHARS_QUOTED, QualityReport
from skillopt_airflow.quality.records import (
    MAX_CHARS,
    Need,
    check_rollouts,
    check_splits,
    evaluation_needs,
    training_needs,
)
from skillopt_airflow.tasks.record_fields import UnreadableRecord

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
        "expect_column_values_to_be_null",
        "expect_table_row_count_to_be_between",
    }


def test_an_id_that_is_used_twice_is_named_within_and_across_splits() -> None:
    report = check(good(train=[record("a"), record("b"), record("a")], test=[record("b")]))
    assert failing(report) == {("id", "train", 3, "a"), ("id", "test", 1, "b")}
    with pytest.raises(DataError, match=r"\(train row 1; train row 2\) in train row 3 \(id a\), test "):
        report.raise_for_failures()


def test_a_record_that_cannot_be_read_is_asked_nothing_else() -> None:
    report = check(good(val=[record("c"), UnreadableRecord("x.jsonl: line 2: not JSON")]))
    assert failing(report) == {("whole record", "val", 2, "val-row-2")}
    with pytest.raises(DataError, match=r"\(x\.jsonl: line 2: not JSON\) in val row 2 "):
        report.raise_for_failures()


@pytest.mark.parametrize(("column", "value"), [("question", None), ("context", " \n"), ("question", 3)])
def test_a_text_that_is_none_is_named(column: str, value: Any) -> None:
    report = check(good(val=[record("c"), record("e", **{column: value})]))
    assert failing(report) == {(column, "val", 2, "e")}
    with pytest.raises(DataError, match=rf"{column} is .* in val row 2 \(id e\)"):
        report.raise_for_failures()


@pytest.mark.parametrize("value", [None, [], "a", [""], ["a", 3]])
def test_a_reference_that_is_none_is_named(value: Any) -> None:
    report = check(good(test=[record("d", answers=value)]))
    assert failing(report) == {("answers", "test", 1, "d")}
    with pytest.raises(DataError, match=r"answers is .* in test row 1 \(id d\)$"):
        report.raise_for_failures()


@pytest.mark.parametrize("value", [None, ""])
def test_an_id_that_is_none_is_named_by_its_row_with_the_reason(value: Any) -> None:
    report = check(good(val=[record("c"), record("x", id=value), record("y", id=value)]))
    assert failing(report) == {("id", "val", 2, None), ("id", "val", 3, None)}
    with pytest.raises(DataError, match=rf"\(id: got {value!r}\) in val row 2 \(id None\), val row 3 "):
        report.raise_for_failures()


def test_an_identity_may_come_from_any_columns() -> None:
    rows = [{"month": "1", "no": 1, "id": "same"}, {"month": "1", "no": 2, "id": "same"}, {"month": "2", "no": 1}]
    splits = {"train": rows, "val": [{"month": "1", "no": 2, "split": "?", "row": "?"}]}
    report = check_splits("x", splits, lambda row: f"{row['month']}:{row['no']}", ("month", "id", "split"), ())
    assert failing(report) == {
        ("id", "val", 1, "1:2"),
        # The column `id` is missing there, and nowhere but in val is there a column `split`.
        ("id", "train", 3, "2:1"),
        *{("split", "train", row, name) for row, name in ((1, "1:1"), (2, "1:2"), (3, "2:1"))},
    }


def test_a_column_that_no_record_has_is_named_once_and_a_split_without_rows() -> None:
    without = {split: [{"id": split, "question": "q", "context": "c"}] for split in good()}
    with pytest.raises(DataError, match=r"no record has the column answers$"):
        check(without).raise_for_failures()
    with pytest.raises(DataError, match=r"0 rows in split train, at least 1 needed; .*the column context"):
        check({"train": [], "val": [], "test": []}).raise_for_failures()


def test_the_sentence_names_five_rows_and_the_report_all() -> None:
    report = check(good(val=[record(str(number), question="") for number in range(20)]))
    assert len(failing(report)) == 20
    with pytest.raises(DataError, match=r"val row 5 \(id 4\) and 15 more rows$"):
        report.raise_for_failures()


@pytest.mark.nightly
def test_the_check_prints_nothing_and_opens_no_network() -> None:
    program = """
import socket, sys
def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise RuntimeError(f"{event} {arguments}")
sys.addaudithook(refuse)
from skillopt_airflow.quality.records import check_splits
assert "great_expectations" not in sys.modules
report = check_splits("x", {"train": [{"id": "a"}, {"id": "a"}]}, lambda record: record["id"], [], [])
assert "great_expectations" in sys.modules
sys.exit(7 if not report.success else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.nightly
def test_a_record_that_is_too_long_is_named_with_what_makes_it_so() -> None:
    long = record("e", question="q" * 50_000_000)
    deep = record("f", deep={"er": ["x" * MAX_CHARS]})
    report = check(good(val=[record("c"), long, deep]))
    assert failing(report) == {("whole record", "val", 2, "e"), ("whole record", "val", 3, "f")}
    values = [row.value for result in report.expectations for row in result.failing]
    assert values == [
        f"{len(canonical_json(long)):,} characters, most of them in question",
        f"{len(canonical_json(deep)):,} characters, most of them in deep",
    ]
    with pytest.raises(DataError, match=r"val row 2 \(id e\), val row 3 ") as raised:
        report.raise_for_failures()
    assert len(str(raised.value)) < 200
    assert len(report.model_dump_json()) < 5000


def test_an_id_or_value_that_is_too_long_is_quoted_in_short() -> None:
    report = check(good(val=[record("n" * 10_000), record("n" * 10_000, question=["q" * 10_000], answers=["", "é"])]))
    assert {row.id for result in report.expectations for row in result.failing} == {"n" * CHARS_QUOTED}
    values = {result.column: row.value for result in report.expectations for row in result.failing}
    assert values["question"] == f'["{"q" * (CHARS_QUOTED - 2)}… (10,004 characters)'
    assert values["answers"] == '["","é"]'


def test_a_split_that_is_smaller_than_what_is_asked_of_it_is_named_with_the_reason() -> None:
    needs = [Need(split=Split.VAL, rows=2, reason="for evaluation.val_limit = 2")]
    assert check(good(val=[record("c"), record("e")]), needs).success
    with pytest.raises(DataError, match=r"split val, at least 2 needed for evaluation\.val_limit = 2$"):
        check(good(), needs).raise_for_failures()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.nightly
@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["id", "question", "context", "answers", "split", "row"]), JSON), max_size=4
    )
)
def test_whatever_the_records_are_exactly_the_unusable_ones_are_named(rows: list[dict[str, Any]]) -> None:
    report = check(good(val=rows))
    named = {row.row for result in report.expectations for row in result.failing if row.split == "val"}
    names = [row.get("id") for row in rows]
    broken = {
        number
        for number, row in enumerate(rows, start=1)
        if not (isinstance(row.get("id"), str) and row["id"] and names.count(row["id"]) == 1)
        or row["id"] in ("a", "b", "d")
        or not all(isinstance(row.get(column), str) and row[column].strip() for column in TEXTS)
        or not (isinstance(row.get("answers"), list) and row["answers"])
        or not all(isinstance(answer, str) and answer.strip() for answer in row["answers"])
    }
    assert named == broken
    assert report.success is (not broken and bool(rows))


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
        ([row("zebra")], "id", "the item is not one of"),
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
def test_a_second_score_of_an_item_is_named_but_not_that_of_another_skill_or_sample() -> None:
    assert check_rollouts("night", {"champion, sample 0": GOOD, "champion, sample 1": GOOD}, ITEMS).success
    for second in (row("a", hard=0.0), row("a", "truncated")):
        report = check_rollouts("night", {"champion": [*GOOD, second]}, ITEMS)
        with pytest.raises(DataError, match=r"champion row 1 \(id a\), champion row 4 \(id a\)$"):
            report.raise_for_failures()


def rules(**knobs: Any) -> EvaluationGroup:
    return EvaluationGroup(**knobs)


def test_limits_are_numbers_of_items_that_must_be_there() -> None:
    needs = {need.split: (need.rows, need.reason) for need in evaluation_needs(rules(val_limit=24, test_limit=100))}
    assert needs == {
        Split.VAL: (24, "for evaluation.val_limit = 24"),
        Split.TEST: (100, "for evaluation.test_limit = 100"),
    }
    assert list(evaluation_needs(rules())) == []


@pytest.mark.parametrize(
    ("policy", "alpha", "fewest"),
    [("strict", 0.05, 1), ("exact_paired", 0.05, 5), ("exact_paired", 0.4, 2), ("exact_paired", 0.01, 7)],
)
def test_the_fewest_items_are_those_with_which_the_policy_itself_can_accept(
    policy: Any, alpha: float, fewest: int
) -> None:
    chosen = rules(gate_policy=policy, gate_alpha=alpha)
    assert policy_of(policy).fewest_items(chosen) == fewest
    for items, accepts in ((fewest - 1, False), (fewest, True)):
        won, lost = (
            Evaluation(scores={str(item): ItemScore(hard=score, soft=score) for item in range(items)})
            for score in (1.0, 0.0)
        )
        if items:
            evidence = Evidence(won, lost, chosen)
            assert (policy_of(policy).judge(evidence, chosen).action is Action.ACCEPT) is accepts


def config(**knobs: Any) -> TrainConfig:
    paths = {"publishing__gate_policy": "strict"} | knobs
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in paths.items()}))


def test_a_gate_needs_its_items_unless_it_is_off() -> None:
    assert training_needs(config(), DATA_SPLITS) == []
    (need,) = training_needs(config(evaluation__gate_policy="exact_paired"), DATA_SPLITS)
    assert (need.split, need.rows) == (Split.VAL, 5)
    assert training_needs(config(evaluation__gate_policy="exact_paired", evaluation__use_gate=False), DATA_SPLITS) == []
    with pytest.raises(ConfigError, match=r"evaluation\.val_limit = 4: at least 5 "):
        training_needs(config(evaluation__gate_policy="exact_paired", evaluation__val_limit=4), DATA_SPLITS)


def test_so_does_the_one_before_publishing_at_its_own_level() -> None:
    (need,) = training_needs(config(publishing__gate_policy="exact_paired", publishing__gate_alpha=0.01), DATA_SPLITS)
    assert (need.split, need.rows) == (Split.TEST, 7)
    assert need.reason == "for publishing.gate_policy = exact_paired to accept anything"
    with pytest.raises(ConfigError, match=r"at least 4 .* publishing\.gate_policy = exact_paired"):
        training_needs(
            config(publishing__gate_policy="exact_paired", publishing__gate_alpha=0.1, evaluation__test_limit=3),
            DATA_SPLITS,
        )
