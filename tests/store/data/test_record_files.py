import csv
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
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.store.data import record_files
from skillopt_airflow.store.data.record_files import FORMATS, PARQUET, table_records
from skillopt_airflow.tasks.record_fields import UnreadableRecord

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


def not_utf8(*texts: str) -> "pa.Array":
    """A column of text in Latin-1, which Parquet files can hold."""
    return pa.array([text.encode("latin-1") for text in texts], pa.binary()).view(pa.string())


def parsed(name: str, content: bytes) -> list[Any]:
    if name.lower().endswith(PARQUET):
        return list(table_records(name, lambda: pa.parquet.ParquetFile(pa.BufferReader(content))))
    return list(record_files.parse_records(name, content))


@given(records=st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
def test_array_and_lines_read_alike(records: list[dict[str, object]]) -> None:
    array = json.dumps(records, ensure_ascii=False).encode()
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()
    assert parsed("x.json", array) == parsed("x.jsonl", lines) == records


@given(
    columns=st.lists(
        WORDS.filter(lambda name: name == name.strip() and ", " not in name), min_size=1, max_size=3, unique=True
    ),
    cells=st.lists(st.lists(WORDS, min_size=3, max_size=3), max_size=3),
)
def test_a_csv_file_gives_the_texts_that_were_written(columns: list[str], cells: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([columns, *(row[: len(columns)] for row in cells)])
    expected = [dict(zip(columns, row, strict=False)) for row in cells]
    assert parsed("x.csv", text.getvalue().encode("utf-8-sig")) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"id,q\n1,a\0b\n2,c\n"),
        ("x.json", b'[{"id": "1", "q": "a\\u0000b"}, {"id": "2", "q": "c"}]'),
        ("x.jsonl", b'{"id": "1", "q": "a\\u0000b"}\n{"id": "2", "q": "c"}\n'),
        ("x.parquet", parquet(id=["1", "2"], q=["a\0b", "c"])),
    ],
)
def test_a_nul_character_costs_no_record(name: str, content: bytes) -> None:
    assert parsed(name, content) == [{"id": "1", "q": "a\0b"}, {"id": "2", "q": "c"}]


def test_a_cell_of_a_csv_file_is_a_text_of_any_length_and_an_empty_one_is_missing() -> None:
    long = "word " * 100_000
    content = f'id,question,answer\n007,"one, two",1.50\n8,,\n\n9,"two\nlines",{long}\n'
    assert parsed("x.csv", content.encode()) == [
        {"id": "007", "question": "one, two", "answer": "1.50"},
        {"id": "8"},
        {"id": "9", "question": "two\nlines", "answer": long},
    ]


def test_a_parquet_file_keeps_its_types_and_what_is_null_or_json_cannot_hold_is_missing() -> None:
    content = parquet(
        number=[7, None],
        share=[0.5, float("nan")],
        weight=[float("inf"), 1.5],
        price=[Decimal("1.50"), None],
        day=[datetime.date(2026, 11, 1), None],
        took=[datetime.timedelta(seconds=90), None],
        words=[["a", "b"], []],
        audio=[b"\0\xff", None],
        nested=[{"x": 1, "inner": [b"a"]}, None],
        counts=pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64())),
    )
    first = {"number": 7, "share": 0.5, "price": "1.50", "day": "2026-11-01", "took": 90.0, "words": ["a", "b"]}
    assert parsed("x.PARQUET", content) == [
        first | {"nested": {"x": 1, "inner": [None]}, "counts": {"x": 1}},
        {"weight": 1.5, "words": []},
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b'[\n{"id": "a"},\n{"id" "b"}]', "line 3, column 7: not JSON"),
        ("x.json", b"", "line 1, column 1: not JSON"),
        ("x.json", b"5", "got a number"),
        ("x.json", b'{"train": [{}], "test": [{}], "n": 1}', r"2 arrays \(train, test\)"),
        ("x.json", b'{"question": {"0": "q"}, "answer": {"0": "a"}}', "got an object\\. With pandas"),
        ("x.json", b'[{"id": NaN}]', "NaN"),
        ("x.json", b'[{"id": "\xe9"}]', "UTF-8 text .* at byte 9"),
        ("x.csv", b"", "line 1: expected a header"),
        ("x.csv", b"id, id\n", "line 1: .* different column names"),
        ("x.csv", b",\n1,2\n", "line 1: expected a header"),
        ("x.csv", b"sep=;\n", "line 2: expected a header"),
        ("x.csv", b'id,"q"s\n1,a\n', "line 1: not CSV"),
        ("x.csv", "id,q\n1,a\n".encode("utf-16"), "UTF-8 text"),
        ("x.parquet", b"id,q\n", "not a Parquet file"),
    ],
)
def test_a_file_that_holds_no_records_is_named(name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(name)}: .*{message}"):
        parsed(name, content)


@pytest.mark.parametrize(
    ("name", "content", "broken", "message"),
    [
        ("x.json", b'[{"id": "a"}, "b"]', 2, "record 2: expected an object"),
        ("x.json", b'[{"id": "\\ud800"}, {"id": "b"}]', 1, "record 1: .* surrogate"),
        ("x.json", b'[{"id": "a"}, {"id": {"\\udfff": 1}}]', 2, "record 2: .* surrogate"),
        ("x.json", b'{"id": "a"}\n{"id": }\n', 2, "line 2: not JSON"),
        ("x.json", b'{"id": NaN}\n{"id": "b"}', 1, "line 1: not JSON .*NaN"),
        ("x.jsonl", b'{"id": "a"}\n\n{"id": }\n', 2, "line 3: not JSON"),
        ("x.jsonl", b'{"id": Infinity}\n{}', 1, "line 1: not JSON .*Infinity"),
        ("x.jsonl", b'{"id": "a"}\n"\xe9"\n', 2, "line 2: not JSON .*utf-8"),
        ("x.jsonl", b"{}\n[1]", 2, "record 2: expected an object"),
        ("x.jsonl", b'{"id": "a"}\n{"id": "\\ud83d"}\n', 2, "record 2: .* surrogate"),
        ("x.csv", b"id,q\n1,a\n2,caf\xe9\n", 2, "record 2: .* UTF-8"),
        ("x.csv", b"id,q\n1,\xed\xa0\xbd\n2,a\n", 1, "record 1: .* UTF-8"),
        ("x.csv", b"id,q\n1,a\n2,b,c\n", 2, "line 3: 3 cells, .* 2 columns"),
        ("x.csv", b"id,q,\n1,a,\n2\n", 2, "line 3: 1 cells, .* 3 columns"),
        ("x.csv", b'id,q\n1, "a, b"\n2,c\n', 1, "line 2: 3 cells, .* without a space before"),
        ("x.parquet", parquet(x=[1, 2], q=not_utf8("\xff", "b")), 1, "record 1: .* UTF-8"),
    ],
)
def test_one_record_that_cannot_be_read_says_why_and_the_others_are_read(
    name: str, content: bytes, broken: int, message: str
) -> None:
    records = parsed(name, content)
    assert [isinstance(record, UnreadableRecord) for record in records] == [broken == 1, broken == 2]
    (reason,) = [record.reason for record in records if isinstance(record, UnreadableRecord)]
    assert re.match(f"{re.escape(name)}: {message}", reason)


@pytest.mark.parametrize(
    ("lines", "records"),
    [
        # The index of pandas' to_csv, and Excel's trailing commas, in the header, in the rows, or in both.
        (",q,a\n0,x,y\n1,z,w\n", ["x y", "z w"]),
        ("q,a,,,\nx,y,,,\nz,w\n,,,,\n", ["x y", "z w"]),
        ("q,a\nx,y,,\nz,w,\n", ["x y", "z w"]),
        ("q,,a\nx,unused,y\n", ["x y"]),
        # Other delimiters, with quotation marks and without, and named as for Excel.
        ('"q";"a"\n"x";"1,5"\n', ["x 1,5"]),
        ("q;a\nx;1,5\nz;w\n", ["x 1,5", "z w"]),
        ('"sep=|"\r\nq|a\r\nx|1,5\r\n', ["x 1,5"]),
        ("q\ta\nx\ty, z\n", ["x y, z"]),
        ('"q;b",a\nx;y,z\n', [{"q;b": "x;y", "a": "z"}]),
        ("q\nwhat; why\n", [{"q": "what; why"}]),
        # Spaces around names, and after delimiters.
        ("q , a\nx,y\n", ["x y"]),
        ('q, a\nx, "y, z"\n', ["x y, z"]),
        # Quotation marks within a cell that has none around it.
        ('q,a\nsay "hi",5"\n', [{"q": 'say "hi"', "a": '5"'}]),
    ],
)
def test_a_csv_file_as_spreadsheets_and_pandas_write_it(lines: str, records: list[Any]) -> None:
    named = [one if isinstance(one, dict) else dict(zip("qa", one.split(" ", 1), strict=True)) for one in records]
    assert parsed("x.CSV", lines.encode("utf-8-sig")) == named


@pytest.mark.parametrize(
    ("lines", "broken", "others"),
    [
        ('"Cars are "in stock" or not.",a0\nq0,a0\nq1,a1\n', "line 2", "q0 q1"),
        ('q0,a0\n"Cars are in stock,a0\nq1,a1\n"q2","x, y"\nq3,a3\n', "line 3", "q0 q1 q2 q3"),
        ('"Cars are in stock,a0\nq0,a0\n"two\nlines",a1\nq2,a2\n', "line 2", "q0 two\nlines q2"),
        ('q0,"Cars\nq1,a1\nq2,a2\n', "line 2", "q1 q2"),
        ('"two "stray" marks\nthree\nlines",a0\nq1,a1\n', "line 2 to 4", "q1"),
        ('"two\nlines",a0,more\nq1,a1\n', "line 2 to 3", "q1"),
        ('q0,a0\nq1,"a1', "line 3", "q0"),
    ],
)
def test_a_stray_quotation_mark_costs_its_row_and_no_other(lines: str, broken: str, others: str) -> None:
    found = parsed("x.csv", f"q,a\n{lines}".encode())
    (reason,) = [record.reason for record in found if isinstance(record, UnreadableRecord)]
    assert reason.startswith(f"x.csv: {broken}: ")
    assert [record["q"] for record in found if record] == others.split(" ")


PLAIN = st.text("ab ", min_size=1).filter(str.strip)


@given(
    rows=st.lists(st.tuples(PLAIN, PLAIN | st.sampled_from(['a "b"', "a, b", "a\nb"])), min_size=1, max_size=6),
    data=st.data(),
)
def test_a_cell_whose_quotation_mark_is_not_closed_takes_no_other_row_along(
    rows: list[tuple[str, str]], data: st.DataObject
) -> None:
    broken = data.draw(st.integers(0, len(rows) - 1))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["q", "a"])
    for place, row in enumerate(rows):
        if place == broken:
            text.write('"never closed,a\n')
        else:
            writer.writerow(row)
    found = parsed("x.csv", text.getvalue().encode())
    assert [place for place, record in enumerate(found) if isinstance(record, UnreadableRecord)] == [broken]
    assert [(record["q"], record["a"]) for record in found if record] == [*rows[:broken], *rows[broken + 1 :]]


@pytest.mark.parametrize("name", ["x.json", "x.ndjson", "X.JSONL"])
def test_lines_and_arrays_are_read_under_each_others_extension(name: str) -> None:
    records = [{"id": "a"}, {"id": "b"}]
    assert parsed(name, b'\xef\xbb\xbf{"id": "a"}\r\n\n{"id": "b"}\n') == records
    assert parsed(name, b'\n[{"id": "a"},\n {"id": "b"}]') == records


@pytest.mark.parametrize(
    ("content", "records"),
    [
        ({"one": {"q": "x"}, "two": {"q": "y", "id": 5}}, [{"id": "one", "q": "x"}, {"id": 5, "q": "y"}]),
        ({"name": "val", "data": [{"id": "a"}], "version": 1}, [{"id": "a"}]),
        (
            {"company": "A", "boxes": [[1], [2]], "at": {"x": 1}},
            [{"id": "7", "company": "A", "boxes": [[1], [2]], "at": {"x": 1}}],
        ),
        ({"answers": [], "id": "own"}, [{"id": "own", "answers": []}]),
    ],
)
def test_an_object_may_hold_records_by_key_or_be_one(content: JsonObject, records: list[JsonObject]) -> None:
    """The key, or the name of the file, is the record's id unless it has one."""
    assert parsed("data/7.json", json.dumps(content).encode()) == records


@pytest.mark.parametrize("extension", FORMATS)
def test_every_format_may_hold_no_records(extension: str) -> None:
    content = {".json": b"[]", ".jsonl": b"", ".ndjson": b"", ".parquet": parquet(id=[])}
    assert parsed(f"x{extension}", content.get(extension, b"id\n")) == []
