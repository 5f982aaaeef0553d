import datetime
import io
import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.store import record_files
from skillopt_airflow.store.record_files import FORMATS, PARQUET, table_records

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


def parsed(name: str, content: bytes) -> list[Any]:
    if name.endswith(PARQUET):
        return list(table_records(name, lambda: pa.parquet.ParquetFile(pa.BufferReader(content))))
    return list(record_files.parsed(name, content))


@given(records=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
def test_array_and_lines_read_alike(records: list[dict[str, object]]) -> None:
    array = json.dumps(records, ensure_ascii=False).encode()
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()
    assert parsed("x.json", array) == parsed("x.jsonl", lines) == records


@given(
    columns=st.lists(WORDS, min_size=1, max_size=3, unique=True),
    cells=st.lists(st.lists(WORDS, min_size=3, max_size=3), max_size=3),
)
def test_a_csv_file_gives_the_texts_that_were_written(columns: list[str], cells: list[list[str]]) -> None:
    import csv

    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([columns, *(row[: len(columns)] for row in cells)])
    expected = [dict(zip(columns, row, strict=False)) for row in cells]
    assert parsed("x.csv", text.getvalue().encode("utf-8-sig")) == expected


def test_a_cell_of_a_csv_file_is_a_text_and_an_empty_one_is_missing() -> None:
    content = b'id,question,answer\n007,"one, two",1.50\n8,,\n\n9,"two\nlines",x\n'
    assert parsed("x.csv", content) == [
        {"id": "007", "question": "one, two", "answer": "1.50"},
        {"id": "8"},
        {"id": "9", "question": "two\nlines", "answer": "x"},
    ]


def test_a_cell_of_a_csv_file_may_be_as_long_as_any_text() -> None:
    long = "word " * 100_000
    assert parsed("x.csv", f"id,context\n1,{long}\n2,b\n".encode()) == [
        {"id": "1", "context": long},
        {"id": "2", "context": "b"},
    ]


def test_a_parquet_file_keeps_its_types_and_what_is_null_is_missing() -> None:
    content = parquet(
        number=[7, None],
        share=[0.5, float("nan")],
        price=[Decimal("1.50"), None],
        day=[datetime.date(2026, 11, 1), None],
        words=[["a", "b"], []],
        nested=[{"x": 1}, None],
    )
    assert parsed("x.parquet", content) == [
        {"number": 7, "share": 0.5, "price": "1.50", "day": "2026-11-01", "words": ["a", "b"], "nested": {"x": 1}},
        {"words": []},
    ]


def test_an_object_may_say_more_of_a_data_set_beside_its_records() -> None:
    assert parsed("x.json", b'{"name": "val", "data": [{"id": "a"}], "version": 1}') == [{"id": "a"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b'[\n{"id": "a"},\n{"id" "b"}]', r"x\.json: line 3, column 7: not JSON"),
        ("x.json", b"", r"x\.json: line 1, column 1: not JSON"),
        ("x.json", b'{"id": "a"}', r"x\.json: expected an array of records, or an object with one, got an object"),
        (
            "x.json",
            b'{"train": [], "test": [], "n": 1}',
            r"x\.json: .*, or an object with one, got an object with 2 arrays \(train, test\)$",
        ),
        ("x.json", b'[{"id": NaN}]', r"x\.json: not JSON \(NaN is no JSON number\)"),
        ("x.json", b'[{"id": "\xe9"}]', r"x\.json: is not UTF-8 text \(.* at byte 9\)"),
        ("x.csv", b"", r"x\.csv: line 1: expected a header"),
        ("x.csv", b"id,id\n", r"x\.csv: line 1: expected a header of different column names"),
        ("x.csv", b"id,\n", r"x\.csv: line 1: expected a header"),
        ("x.csv", b"id;q\n1;a,b\n", r"x\.csv: line 1: the header is one column, 'id;q'; cells are divided by commas"),
        ("x.csv", b"id\tq\n1\ta\n", r"x\.csv: line 1: the header is one column, .*; cells are divided by commas"),
        ("x.csv", b'id,q\n1,"a\n', r"x\.csv: line 2: not CSV \(unexpected end of data\)"),
        ("x.csv", b"id,q\n1,\xe9\n", r"x\.csv: is not UTF-8 text"),
        ("x.parquet", b"id,q\n", r"x\.parquet: not a Parquet file"),
    ],
)
def test_a_file_that_holds_no_records_is_named(name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(name, content)


@pytest.mark.parametrize(
    ("name", "content", "broken", "message"),
    [
        ("x.json", b'[{"id": "a"}, "b"]', 2, r"x\.json: record 2: expected an object .* got a text"),
        ("x.json", b'[{"id": "\\ud800"}, {"id": "b"}]', 1, r"x\.json: record 1: holds half of a surrogate pair"),
        ("x.jsonl", b'{"id": "a"}\n\n{"id": }\n', 2, r"x\.jsonl: line 3: not JSON .* one record a line"),
        ("x.jsonl", b'{"id": Infinity}\n{}', 1, r"x\.jsonl: line 1: not JSON \(Infinity is no JSON number\)"),
        ("x.jsonl", b'{"id": "a"}\n"\xe9"\n', 2, r"x\.jsonl: line 2: not JSON \('utf-8' codec can't decode"),
        ("x.jsonl", b"{}\n[1]", 2, r"x\.jsonl: record 2: expected an object .* got an array"),
        ("x.csv", b"id,q\n1,a\n2,b,c\n", 2, r"x\.csv: line 3: 3 cells, and the header has 2 columns \(id, q\); put q"),
        ("x.csv", b'id,q\n1, "a, b"\n2,c\n', 1, r"x\.csv: line 2: 3 cells, .* a comma, with no blank before them$"),
        ("x.parquet", parquet(x=[{"bytes": b"a"}, None]), 1, r"x\.parquet: record 1, .* of bytes and path, got bytes"),
        ("x.parquet", parquet(q=["a", "b"], x=[b"\0", None]), 1, r"x\.parquet: record 1, column x: .*, got bytes"),
        ("x.parquet", parquet(x=[1.0, float("inf")]), 2, r"x\.parquet: record 2, column x: inf is no JSON number"),
    ],
)
def test_one_record_that_cannot_be_read_says_why_and_the_others_are_read(
    name: str, content: bytes, broken: int, message: str
) -> None:
    records = parsed(name, content)
    assert len(records) == 2
    assert [isinstance(record, UnreadableRecord) for record in records] == [broken == 1, broken == 2]
    (reason,) = [record.reason for record in records if isinstance(record, UnreadableRecord)]
    assert re.match(message, reason)


@pytest.mark.parametrize("extension", FORMATS)
def test_every_format_may_hold_no_records(extension: str) -> None:
    content = {".json": b"[]", ".jsonl": b"", ".csv": b"id\n", ".parquet": parquet(id=[])}
    assert parsed(f"x{extension}", content[extension]) == []
