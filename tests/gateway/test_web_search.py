import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from skillopt_airflow.gateway import web_search as module
from skillopt_airflow.gateway.web_search import SearchError, SearchLimitExceeded, WebSearch
from skillopt_airflow.tasks.corpus import FoundDocument
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


def test_a_task_cannot_ask_without_end(server: SearchServer) -> None:
    searching = web_search(server)
    searching.left = 1
    search(searching)
    with pytest.raises(SearchLimitExceeded):
        search(searching)
