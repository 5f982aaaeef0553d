"""The search behind a real gateway's socket, as a sandbox reaches it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.core.found_document import FoundDocument
from skillopt_airflow.gateway.web_search import WebSearch
from tests.gateway.gateway_rig import Rig, rigs
from tests.gateway.page_server import fetcher, page, page_server
from tests.gateway.scripted_provider import completion
from tests.gateway.search_rig import KEY, search_server, web_search


@pytest.fixture
def searched(tmp_path: Path) -> Iterator[Rig]:
    with (
        search_server("brave", lambda query: (200, [{"url": "https://a.example", "title": query}])) as server,
        page_server({"/": page("<p>Hi")}) as pages,
        rigs(tmp_path) as make,
    ):
        searching = web_search(server, fetcher=fetcher(pages))
        searching.left = 4
        rig = make(lambda _: completion("hello"), search=searching)
        rig.page = pages.address("/")  # type: ignore[attr-defined]
        rig.server = server  # type: ignore[attr-defined]
        yield rig


def ask(rig: Rig, path: str, **body: object) -> httpx.Response:
    return rig.client.post(path, json=body)


def test_a_sandbox_searches_and_opens_pages_beside_its_model_calls(searched: Rig) -> None:
    found = ask(searched, "/search", query="mayor").json()
    assert found == {"results": [{"title": "mayor", "url": "https://a.example", "date": "", "text": ""}]}
    assert ask(searched, "/page", address=searched.page).json() == {"text": "Hi", "refused": ""}  # type: ignore[attr-defined]
    assert "http" in ask(searched, "/page", address="file:///etc/passwd").json()["refused"]
    assert searched.post().status_code == 200
    assert KEY not in str(found)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search", b"{}"),
        ("/search", b'{"query": " "}'),
        ("/search", b"not json"),
        ("/search", json.dumps({"query": "a" * 3000}).encode()),
        ("/search", b'{"query": "a", "engine": "http://127.0.0.1"}'),
        ("/page", json.dumps({"address": "http://" + "a" * 3000}).encode()),
    ],
)
def test_what_is_no_search_is_told_so(searched: Rig, path: str, body: bytes) -> None:
    answer = searched.client.post(path, content=body)
    assert answer.status_code == 400
    assert "not usable" in answer.json()["error"]
    assert not searched.server.asked  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/search?engine=x", "/search/", "/Search", "/pages", "/%73earch"])
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
    for _ in range(3):
        ask(searched, "/page", address="x")
    assert ask(searched, "/page", address="x").status_code == 429


def test_a_run_without_a_search_has_no_such_path(tmp_path: Path) -> None:
    with rigs(tmp_path) as make:
        rig = make(lambda _: completion("hello"))
        assert [ask(rig, path, query="a").status_code for path in ("/search", "/page")] == [403, 403]


@pytest.mark.parametrize("path", ["/search", "/page"])
def test_a_long_question_is_refused_before_it_is_read_and_many_flaws_get_one_reason(searched: Rig, path: str) -> None:
    long = searched.client.post(path, content=b'{"query": "' + b"x" * 65_536 + b'"}')
    many = searched.client.post(path, content=b'{"query": 1,' + b",".join(b'"%x":0' % n for n in range(6000)) + b"}")
    assert (long.status_code, many.status_code) == (413, 400)
    assert len(long.content) < 500
    assert len(many.content) < 500
    assert searched.server.asked == []  # type: ignore[attr-defined]
