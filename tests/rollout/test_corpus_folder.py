"""The tools over a corpus: what they find, their limits, and that no name leads out of the folder."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.rollout import corpus_folder
from skillopt_airflow.rollout.corpus_folder import (
    LINES_PER_PAGE,
    MAX_FOUND,
    MAX_LINES,
    MAX_LISTED,
    MAX_MATCHES,
    MAX_READ_CHARS,
    NO_CORPUS,
    CorpusFolder,
    split_pages,
)

MARKED = "--- PAGE 1 ---\n\nReceipts of customs\n\n--- PAGE 2 ---\n\nExpenditure for roads\n| Roads | 12.5 |\n"
SECRET = "what-nobody-may-read"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    (made / "1944").mkdir(parents=True)
    (made / "1944" / "march.txt").write_text(MARKED)
    (made / "april.txt").write_text("Harbour dues\n\fTobacco excise\n")
    (made / "plain.txt").write_text("\n".join(f"line {number}" for number in range(1, 251)))
    (made / "picture.png").write_bytes(b"\x89PNG\xff\x00")
    (made / ".hidden").write_text(SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    (made / "link.txt").symlink_to(tmp_path / "secret.txt")
    (made / "linked").symlink_to(tmp_path)
    return made


@pytest.fixture
def corpus(folder: Path) -> CorpusFolder:
    return CorpusFolder(folder)


def told(tool: Awaitable[str]) -> str:
    async def awaited() -> str:
        return await tool

    return asyncio.run(awaited())


def test_the_documents_are_the_plain_files(corpus: CorpusFolder, folder: Path) -> None:
    assert corpus.names() == ["1944/march.txt", "april.txt", "picture.png", "plain.txt"]
    assert corpus.folder == str(folder)
    assert told(corpus.list_documents()) == "1944/march.txt\napril.txt\npicture.png\nplain.txt"
    assert told(corpus.list_documents("*MAR*")) == "1944/march.txt"
    with pytest.raises(LookupError, match="1999"):
        told(corpus.list_documents("1999*"))
    assert (NO_CORPUS.folder, list(NO_CORPUS.names())) == ("", [])
    with pytest.raises(LookupError, match=r"data\.corpus"):
        told(NO_CORPUS.read_lines("a.txt"))


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.txt", "1944/../../secret.txt", "linked/secret.txt", "link.txt", ".hidden", "/etc/passwd"),
        *("", ".", "..", "1944", "..\\secret.txt", "secret.txt", "plain.txt/../../secret.txt", "plain.txt\0"),
    ],
)
def test_no_name_leads_out_of_the_folder(corpus: CorpusFolder, name: str) -> None:
    for tool in (corpus.read_page(name, 1), corpus.read_lines(name)):
        with pytest.raises(LookupError, match="there is no document"):
            told(tool)
    with pytest.raises(LookupError, match=r"there is no document|no line of any document contains"):
        told(corpus.grep(SECRET, name))
    with pytest.raises(LookupError, match="there is no document"):
        corpus.page(name, 1)


def test_a_file_that_becomes_a_link_meanwhile_is_not_followed(corpus: CorpusFolder, folder: Path) -> None:
    assert "plain.txt" in corpus.names()
    (folder / "plain.txt").unlink()
    (folder / "plain.txt").symlink_to(folder.parent / "secret.txt")
    with pytest.raises(LookupError, match=r"plain\.txt cannot be read as text"):
        told(corpus.read_lines("plain.txt"))


def test_a_page_is_what_stands_behind_its_mark(corpus: CorpusFolder) -> None:
    assert told(corpus.read_page("1944/march.txt", 2)) == (
        "1944/march.txt, page 2, lines 6 to 9:\nExpenditure for roads\n| Roads | 12.5 |"
    )
    assert corpus.page("march.txt", 1) == "Receipts of customs"
    assert corpus.page("april.txt", 1) == "Harbour dues"
    assert corpus.page("april.txt", 2) == "Tobacco excise"
    assert corpus.page("plain.txt", 3).startswith("line 201")
    with pytest.raises(LookupError, match=r"1944/march\.txt has no page 9"):
        told(corpus.read_page("march.txt", 9))
    with pytest.raises(LookupError, match=r"picture\.png cannot be read as text"):
        told(corpus.read_page("picture.png", 1))
    with pytest.raises(LookupError, match=r"plane\.txt.*plain\.txt"):
        told(corpus.read_page("plane.txt", 1))


def test_lines_have_their_numbers_and_a_limit(corpus: CorpusFolder) -> None:
    assert (
        told(corpus.read_lines("plain.txt", 249)) == "plain.txt, lines 249 to 250 of 250:\n249: line 249\n250: line 250"
    )
    assert told(corpus.read_lines("plain.txt", 1, 10**9)).count("\n") == MAX_LINES
    assert "lines 5 to 5 of" in told(corpus.read_lines("plain.txt", 5, -3))
    for start in (0, -1, 251):
        with pytest.raises(LookupError, match=f"1 to 250.*{start}"):
            told(corpus.read_lines("plain.txt", start))


def test_a_search_finds_pages_of_all_documents(corpus: CorpusFolder) -> None:
    found = told(corpus.search_pages("roads expenditure")).splitlines()
    assert found[0] == "1944/march.txt, page 2: Expenditure for roads / | Roads | 12.5 |"
    assert "april.txt, page 2: Tobacco excise" in told(corpus.search_pages("TOBACCO"))
    for query in ("zebra", ""):
        with pytest.raises(LookupError, match="no page"):
            told(corpus.search_pages(query))


def test_the_index_is_made_once_for_all_items(corpus: CorpusFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    ranking = corpus_folder.Ranking
    monkeypatch.setattr(corpus_folder, "Ranking", lambda texts: made.append(1) or ranking(texts))

    async def searches() -> None:
        await asyncio.gather(*(corpus.search_pages("roads") for _ in range(8)))

    asyncio.run(searches())
    assert made == [1]


def test_grep_finds_lines_whatever_their_case(corpus: CorpusFolder) -> None:
    assert told(corpus.grep("roads |")) == "1944/march.txt, page 2, line 8: | Roads | 12.5 |"
    assert told(corpus.grep("ROADS", "march.txt")).count("\n") == 1
    with pytest.raises(LookupError, match=r"no line of april\.txt contains 'roads'"):
        told(corpus.grep("roads", "april.txt"))
    with pytest.raises(ValueError, match="give a text"):
        told(corpus.grep("  "))
    # It is a text and no pattern.
    with pytest.raises(LookupError, match="no line"):
        told(corpus.grep("r.ads"))


def test_what_a_tool_returns_has_limits(tmp_path: Path) -> None:
    for number in range(MAX_LISTED + 7):
        (tmp_path / f"{number:03}.txt").write_text(f"wheat {number}\n" + "wheat " * 10_000)
    corpus = CorpusFolder(tmp_path)
    listed = told(corpus.list_documents())
    assert listed.endswith("\n[and 7 more: give a narrower pattern]")
    assert len(listed.splitlines()) == MAX_LISTED + 1
    assert len(told(corpus.search_pages("wheat")).splitlines()) == MAX_FOUND
    lines = told(corpus.grep("wheat")).splitlines()
    assert len(lines) == MAX_MATCHES + 1
    assert lines[-1] == f"[more than {MAX_MATCHES} lines: give a longer text or one document]"
    assert max(map(len, lines)) < 400
    page = told(corpus.read_page("000.txt", 1))
    assert len(page) < MAX_READ_CHARS + 200
    assert "characters left out" in page


@given(st.lists(st.text(alphabet="ab\n ", max_size=6), min_size=1, max_size=5))
def test_pages_hold_all_lines_of_a_marked_text(texts: list[str]) -> None:
    marked = "".join(f"--- PAGE {number} ---\n{text}\n" for number, text in enumerate(texts, start=1))
    pages = split_pages(marked)
    assert [page.number for page in pages] == list(range(1, len(texts) + 1))
    assert [page.text for page in pages] == [text.strip() for text in texts]
    lines = marked.split("\n")
    for page in pages:
        assert lines[page.first - 1 : page.first - 1 + len(page.lines)] == list(page.lines)


@given(st.integers(1, 5 * LINES_PER_PAGE))
def test_a_text_without_marks_has_pages_of_equal_length(count: int) -> None:
    pages = split_pages("\n".join(map(str, range(count))))
    assert [page.first for page in pages] == list(range(1, count + 1, LINES_PER_PAGE))
    assert sum(len(page.lines) for page in pages) == count
