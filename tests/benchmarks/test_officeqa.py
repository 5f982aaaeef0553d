import asyncio
import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.officeqa.adapter import BENCHMARK, MAX_PAGE_CHARS, MAX_PAGES_CHARS
from benchmarks.officeqa.tools import MAX_CHARS, calculate, calculated
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.rollout.corpus_folder import CorpusFolder
from skillopt_airflow.rollout.workspace import ItemFolders
from skillopt_airflow.store.data.record_files import parse_records

SOURCES = "https://example.org/one?page=2\r\nhttps://example.org/two?x=1&page=7"
RECORD: dict[str, Any] = {
    "uid": "UID0002",
    "question": "How much was it?",
    "answer": "543 million",
    "source_docs": SOURCES,
    "source_files": "one.txt\r\ntwo.txt",
    "difficulty": "hard",
}


def workspace(folder: Path) -> ItemFolders:
    return ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0, corpus=CorpusFolder(folder))


def document(folder: Path, name: str, **pages: str) -> None:
    marked = (f"--- PAGE {number[1:]} ---\n\n{text}\n" for number, text in pages.items())
    (folder / name).write_text("".join(marked))


def shown(record: dict[str, Any], folder: Path) -> str:
    return asyncio.run(BENCHMARK.shown_files(BENCHMARK.item(record).public, workspace(folder)))


def test_the_official_file_is_read_and_an_answer_is_no_public_part() -> None:
    header = "uid,question,answer,source_docs,source_files,difficulty"
    row = 'UID0002,"How much, in all?",543,"https://e.org/a?page=1\r\nhttps://e.org/b?page=2","a.txt\r\nb.txt",easy'
    (record,) = parse_records("officeqa_full.csv", f"{header}\r\n{row}\r\n".encode())
    item = BENCHMARK.item(record)
    assert item.public == {
        "question": "How much, in all?",
        "source_docs": ["https://e.org/a?page=1", "https://e.org/b?page=2"],
        "source_files": ["a.txt", "b.txt"],
    }
    assert (item.id, item.reference) == ("UID0002", {"answer": "543", "level": "easy"})
    older = {key: value for key, value in RECORD.items() if key != "difficulty"}
    assert BENCHMARK.item(older | {"category": "easy"}).reference["level"] == "easy"
    assert BENCHMARK.item(older).reference["level"] == ""


def test_several_files_stand_in_a_cell() -> None:
    for cell in ("a.txt\r\nb.txt\r\n", "a.txt; b.txt", ["a.txt", "b.txt"]):
        assert BENCHMARK.item(RECORD | {"source_files": cell}).public["source_files"] == ["a.txt", "b.txt"]
    assert BENCHMARK.item(RECORD | {"source_files": ""}).public["source_files"] == []


def test_the_chat_harness_shows_the_pages_that_the_sources_name(tmp_path: Path) -> None:
    document(tmp_path, "one.txt", p1="not this", p2="customs 12")
    document(tmp_path, "two.txt", p7="excise 7", p8="nor this")
    assert shown(RECORD, tmp_path).endswith(
        ":\n\n<page document='one.txt' number=2>\ncustoms 12\n</page>\n\n"
        "<page document='two.txt' number=7>\nexcise 7\n</page>"
    )
    # All sources may be pages of one file, and be named twice.
    of_one = RECORD | {"source_files": "two.txt", "source_docs": "https://e.org/?page=7\nhttps://e.org/?page=8\n" * 2}
    assert shown(of_one, tmp_path).count("<page") == 2


def test_an_address_that_names_a_bulletin_is_a_page_of_that_one(tmp_path: Path) -> None:
    for name, pages in (("1941_01", {"p15": "a", "p16": "b"}), ("1944_01", {"p3": "c"}), ("1970_12", {"p32": "d"})):
        document(tmp_path, f"treasury_bulletin_{name}.txt", **pages)
    sources = (
        "https://e.org/title/treasury-bulletin-407/January-1941-6529?page=15",
        "https://e.org/title/treasury-bulletin-407/january-1941-6529?page=16",
        "https://e.org/title/treasury-bulletin-407/january-1944-6565?page=3",
        "https://e.org/title/treasury-bulletin-407/december-1970-6877?page=32",
    )
    files = "treasury_bulletin_1941_01.txt\ntreasury_bulletin_1944_01.txt"
    text = shown(RECORD | {"source_files": files, "source_docs": "\n".join(sources)}, tmp_path)
    found = re.findall(r"_(\d{4}_\d{2})\.txt' number=(\d+)", text)
    assert found == [("1941_01", "15"), ("1941_01", "16"), ("1944_01", "3"), ("1970_12", "32")]


def test_the_pages_have_a_limit_each_and_together(tmp_path: Path) -> None:
    long = "x" * (MAX_PAGE_CHARS + 5)
    document(tmp_path, "one.txt", **{f"p{number}": long for number in range(1, 9)})
    sources = "\n".join(f"https://e.org/?page={number}" for number in range(1, 9))
    text = shown(RECORD | {"source_files": "one.txt", "source_docs": sources}, tmp_path)
    assert "[5 characters" in text
    assert MAX_PAGES_CHARS < len(text) < MAX_PAGES_CHARS + 500
    assert text.count("<page") == 4


def test_a_missing_page_is_named_and_an_agent_gets_tools_over_the_corpus_and_no_source(tmp_path: Path) -> None:
    document(tmp_path, "one.txt", p2="customs 12")
    with pytest.raises(LookupError, match=r"two\.txt"):
        shown(RECORD, tmp_path)
    public = BENCHMARK.item(RECORD).public
    tools = BENCHMARK.tools(public, workspace(tmp_path))
    names = ["list_documents", "search_pages", "grep", "read_page", "read_lines", "calculate"]
    assert [tool.__name__ for tool in tools] == names
    assert "one.txt" not in BENCHMARK.task(public)
    assert "How much was it?" in BENCHMARK.task(public)


@pytest.mark.parametrize(
    ("response", "expected", "right"),
    [
        ("<answer>1</answer> no: <answer> 543 </answer>", "543 million", 1),
        ("<FINAL_ANSWER>543</FINAL_ANSWER>", "543", 1),
        ("<FINAL_ANSWER>3</FINAL_ANSWER> <answer>4</answer>", "4", 1),
        ("It is\n5\n", "5", 1),
        ("", "5", 0),
        # The score is the official one without tolerance.
        ("<answer>101</answer>", "100", 0),
    ],
)
def test_the_answer_is_in_the_last_tags_or_else_the_last_line(response: str, expected: str, right: float) -> None:
    item = BENCHMARK.item(RECORD | {"answer": expected})
    trajectory = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(response))
    assert BENCHMARK.score(item, trajectory).hard == right


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("-5 + +3", "-2"),
        ("7 % 4", "3"),
        ("10 ** 20", "100000000000000000000"),
        ("1e3", "1000.0"),
        ("round((1234.5 - 1200) / 1200 * 100, 2)", "2.88"),
        ("round(-2.345, 2)", "-2.35"),
        ("round(1234, -2)", "1200"),
        ("sqrt(2.25)", "1.5"),
        ("mean(1, 2, 6)", "3"),
        ("round(log(exp(2)), 6)", "2.000000"),
        (" 1\n", "1"),
    ],
)
def test_arithmetic_in_decimals(expression: str, result: str) -> None:
    assert asyncio.run(calculate(expression)) == result


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1,234.5 + 1", "'(1, 234.5 + 1)' is no arithmetic"),
        ("1 +", "is no arithmetic"),
        ("x + 1", "'x' is no arithmetic"),
        ("True + 1", "is no arithmetic"),
        ("__import__('os').system('true')", "is no arithmetic"),
        ("round.__call__(1)", "is no arithmetic"),
        ("1 / 0", "it divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("9e9999 * 10", "too large"),
        ("sqrt(-1)", "not defined"),
        ("round(1, 1.5)", "how many decimals"),
        ("abs(1, 2)", "take one number"),
        ("(" * 60 + "1" + ")" * 60 + "+1" * 60, "nested"),
        ("1" * (MAX_CHARS + 1), f"{MAX_CHARS} characters"),
    ],
)
def test_what_is_no_arithmetic_is_refused_with_what_to_write(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        calculated(expression)


@given(st.decimals(-(10**9), 10**9, places=3), st.decimals(-(10**9), 10**9, places=3))
def test_sums_and_differences_lose_no_digit(one: Decimal, other: Decimal) -> None:
    assert calculated(f"{one} + {other}") == one + other
    assert calculated(f"({one}) - ({other})") == one - other


@given(st.text(max_size=30))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(calculated(text), Decimal)
