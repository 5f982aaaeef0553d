"""The search: all kinds of servers, what is remembered, and a real gateway's socket, as a sandbox reaches it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.gateway import web_search as module
from skillopt_airflow.gateway.web_search import MAX_CHARS, MAX_WORDS, SearchError, WebSearch, shortened_query
from skillopt_airflow.tasks.corpus import FoundDocument
from tests.gateway.gateway_rig import Rig, rigs
from tests.gateway.scripted_provider import completion
from tests.gateway.search_rig import KEY, Answered, Memory, SearchServer, search_server, web_search


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with search_server("searxng", lambda query: (200, [{"url": f"https://{query}.example", "title": query}])) as found:
        yield found


def search(searching: WebSearch, query: str = "mayor") -> list[FoundDocument]:
    return asyncio.run(searching.search(query))


def test_a_query_is_asked_once_however_many_skills_search_for_it(server: SearchServer) -> None:
    memory = Memory()
    first = search(web_search(server, memory))
    # Another task of the run, under another skill, when the web says something else.
    server.answer = lambda query: (200, [{"url": "https://changed.example"}])
    assert (
        search(web_search(server, memory), "  mayor \n")
        == first
        == [FoundDocument(title="mayor", url="https://mayor.example")]
    )
    assert server.asked == ["mayor"]
    assert search(web_search(server, Memory())) != first


def test_what_several_items_ask_at_once_is_paid_once(server: SearchServer) -> None:
    async def together() -> list[list[FoundDocument]]:
        searching = web_search(server)
        return list(await asyncio.gather(*(searching.search("mayor") for _ in range(5))))

    first, *others = asyncio.run(together())
    assert others == [first] * 4
    assert server.asked == ["mayor"]


def test_of_two_who_ask_at_once_both_go_on_with_what_was_stored_first(server: SearchServer) -> None:
    class Late(Memory):
        def keep(self, query: str, answer: Any) -> Any:
            self.kept[query] = [FoundDocument(title="of another").model_dump()]
            return super().keep(query, answer)

    assert search(web_search(server, Late())) == [FoundDocument(title="of another")]


def test_no_more_results_come_than_are_wanted(server: SearchServer) -> None:
    server.answer = lambda query: (200, [{"url": f"https://{number}.example"} for number in range(9)])
    assert len(search(web_search(server))) == 5


def test_a_text_is_cut_at_the_limit(server: SearchServer) -> None:
    server.answer = lambda query: (200, [{"url": "https://a.example", "content": "a" * 12_001}])
    assert search(web_search(server))[0].text == "a" * 12_000


def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before tries, which take no time, on a clock that stands still; jitter adds a quarter."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(module, "FIRST_PAUSE", 1.0)
    monkeypatch.setattr(module.random, "uniform", lambda low, high: 1.25)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return found


@pytest.mark.parametrize(
    ("retry_after", "paused"),
    [("0", [0.0, 1.25, 2.5, 5.0]), ("3", [0.0, 3.75, 3.75, 5.0]), ("600", [0.0, 12.5, 12.5, 12.5])],
)
def test_a_pause_is_never_shorter_than_the_backoff(
    server: SearchServer, monkeypatch: pytest.MonkeyPatch, retry_after: str, paused: list[float]
) -> None:
    server.answer = lambda query: (503, "down")
    server.headers["retry-after"] = retry_after
    found = waits(monkeypatch)
    with pytest.raises(SearchError):
        search(web_search(server))
    assert found == paused


def test_what_a_server_asks_for_with_429_holds_for_every_search(
    server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Answered] = [(429, "later"), *[(200, [{"url": "https://a.example"}])] * 2]
    server.answer = lambda query: answers.pop(0)
    server.headers["retry-after"] = "8"
    found, searching = waits(monkeypatch), web_search(server)
    for query in ("mayor", "town"):
        search(searching, query)
    assert server.asked == ["mayor", "mayor", "town"]
    assert found == [0.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("status", "document", "said", "tries"),
    [
        (503, "down", "status 503", 4),
        (403, "no", "status 403; list json below search.formats", 1),
        (200, "<html>", "connection's host and `kind`", 1),
        (200, {"error": "x"}, "connection's host and `kind`", 1),
    ],
)
def test_a_search_that_fails_says_why_and_is_not_remembered(
    server: SearchServer, status: int, document: Any, said: str, tries: int
) -> None:
    memory = Memory()
    server.answer = lambda query: (status, document)
    with pytest.raises(SearchError, match=f"connection skillopt_search: .*{said}"):
        search(web_search(server, memory))
    assert len(server.asked) == tries
    assert not memory.kept


def test_a_server_that_is_not_there_fails_a_search(server: SearchServer) -> None:
    gone = SearchServer("searxng", server.answer, port=9)
    with pytest.raises(SearchError, match=r"did not answer \(ConnectError\)"):
        search(web_search(gone))


def test_a_key_that_a_server_repeats_is_redacted(server: SearchServer) -> None:
    server.answer = lambda query: (200, [{"url": "https://a.example", "content": f"your key is {KEY}"}])
    memory = Memory()
    assert "***" in search(web_search(server, memory))[0].text
    assert KEY not in str(memory.kept)


FOUND = FoundDocument(
    title="Council", url="https://a.example", date="2026-01-31T00:00:00", text="The mayor is A. Lind."
)
RESULTS: dict[str, dict[str, Any]] = {
    "searxng": {
        "url": FOUND.url,
        "title": FOUND.title,
        "content": FOUND.text,
        "publishedDate": FOUND.date,
        "engine": "duckduckgo",
        "score": 1.0,
    },
    "brave": {
        "url": FOUND.url,
        "title": FOUND.title,
        "description": FOUND.text,
        "page_age": FOUND.date,
        "type": "search_result",
    },
    "tavily": {
        "url": FOUND.url,
        "title": FOUND.title,
        "content": "The mayor",
        "raw_content": FOUND.text,
        "published_date": FOUND.date,
        "score": 0.9,
    },
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_are_read(kind: str) -> None:
    bare = {"url": "https://b.example", "title": "B"}
    with search_server(kind, lambda query: (200, [RESULTS[kind], bare])) as server:
        found = asyncio.run(web_search(server).search("who is the mayor"))
        nothing: Any = {"type": "search", "query": {"original": "x"}} if kind == "brave" else []
        server.answer = lambda query: (200, nothing)
        assert asyncio.run(web_search(server).search("x")) == []
    assert found == [FOUND, FoundDocument(url="https://b.example", title="B")]


@given(st.text())
def test_every_server_takes_every_query(query: str) -> None:
    short = shortened_query(query)
    assert len(short) <= MAX_CHARS
    assert len(short.split()) <= MAX_WORDS
    assert query.split()[: len(short.split())] == short.split() or len(short) == MAX_CHARS


@pytest.fixture
def searched(tmp_path: Path) -> Iterator[Rig]:
    with (
        search_server("brave", lambda query: (200, [{"url": "https://a.example", "title": query}])) as server,
        rigs(tmp_path) as make,
    ):
        searching = web_search(server)
        searching.left = 2
        rig = make(lambda _: completion("hello"), search=searching)
        rig.server = server  # type: ignore[attr-defined]
        yield rig


def ask(rig: Rig, path: str, **body: object) -> httpx.Response:
    return rig.client.post(path, json=body)


def test_a_sandbox_searches_beside_its_model_calls(searched: Rig) -> None:
    found = ask(searched, "/search", query="mayor").json()
    assert found == {"results": [{"title": "mayor", "url": "https://a.example", "date": "", "text": ""}]}
    assert searched.post().status_code == 200
    assert KEY not in str(found)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"query": " "}',
        b"not json",
        json.dumps({"query": "a" * 3000}).encode(),
        b'{"query": "a", "engine": "http://127.0.0.1"}',
    ],
)
def test_what_is_no_search_is_told_so(searched: Rig, body: bytes) -> None:
    answer = searched.client.post("/search", content=body)
    assert answer.status_code == 400
    assert "not usable" in answer.json()["error"]
    assert not searched.server.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/search?engine=x", "/search/", "/Search", "/page", "/%73earch"])
def test_no_other_path_leads_to_the_search(searched: Rig, path: str) -> None:
    assert ask(searched, path, query="mayor").status_code == 403
    assert searched.client.get("/search").status_code == 403
    assert not searched.server.asked  # type: ignore[attr-defined]


def test_a_store_that_fails_is_told_as_such(searched: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(self: WebSearch, query: str) -> list[FoundDocument]:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(WebSearch, "search", search)
    failed = ask(searched, "/search", query="mayor")
    assert (failed.status_code, failed.json()["error"]) == (502, "the store does not answer")


def test_a_search_that_is_down_or_spent_is_told_apart(searched: Rig) -> None:
    searched.server.answer = lambda query: (401, "no")  # type: ignore[attr-defined]
    down = ask(searched, "/search", query="mayor")
    assert (down.status_code, "connection skillopt_search" in down.json()["error"]) == (502, True)
    ask(searched, "/search", query="mayor")
    assert ask(searched, "/search", query="mayor").status_code == 429


def test_a_run_without_a_search_has_no_such_path(tmp_path: Path) -> None:
    with rigs(tmp_path) as make:
        rig = make(lambda _: completion("hello"))
        assert ask(rig, "/search", query="a").status_code == 403


def test_a_long_question_is_refused_unread_and_many_flaws_get_one_reason(searched: Rig) -> None:
    long = searched.client.post("/search", content=b'{"query": "' + b"x" * 65_536 + b'"}')
    many = searched.client.post(
        "/search", content=b'{"query": 1,' + b",".join(b'"%x":0' % n for n in range(6000)) + b"}"
    )
    assert (long.status_code, many.status_code) == (413, 400)
    assert len(long.content) < 500
    assert len(many.content) < 500
    assert searched.server.asked == []  # type: ignore[attr-defined]
