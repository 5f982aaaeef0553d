"""All kinds of server, as their own pages describe them; `search_rig` refuses what these do not have."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.web_search import MAX_CHARS, MAX_WORDS, shortened_query
from skillopt_airflow.tasks.corpus import FoundDocument
from tests.gateway.search_rig import search_server, web_search

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
