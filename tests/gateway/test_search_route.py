"""The search behind a real gateway's socket, as a sandbox reaches it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.gateway.web_search import WebSearch
from skillopt_airflow.tasks.corpus import FoundDocument
from tests.gateway.gateway_rig import Rig, rigs
from tests.gateway.scripted_provider import completion
from tests.gateway.search_rig import KEY, search_server, web_search


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
