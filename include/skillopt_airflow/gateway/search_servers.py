"""The servers that answer a search: how each is asked, and where in its answer the results are.

SearXNG: https://docs.searxng.org/dev/search_api.html. Brave Search API:
https://api-dashboard.search.brave.com/api-reference/web/search/get.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, SecretStr

from skillopt_airflow.core.found_document import FoundDocument
from skillopt_airflow.core.types import Value

SearchKind = Literal["searxng", "brave"]
MOST_CHARS, MOST_WORDS = 400, 50
"""Of a query: what Brave takes; it refuses longer ones."""


class SearchUpstream(Value):
    """A search server and the credentials for it; they stay in the process that asks it."""

    conn_id: str
    """The Airflow connection, for messages."""
    kind: SearchKind
    base_url: str = Field(pattern=r"^https?://[^\s/]+")
    api_key: SecretStr = SecretStr("")
    """Empty for a server without keys."""


class _SearXNGResult(BaseModel):
    url: str
    title: str = ""
    content: str | None = None
    publishedDate: str | None = None  # noqa: N815 - the server's own name


class _SearXNGAnswer(BaseModel):
    results: list[_SearXNGResult]


class _BraveResult(BaseModel):
    url: str
    title: str = ""
    description: str | None = None
    page_age: str | None = None


class _BraveResults(BaseModel):
    results: list[_BraveResult] = []


class _BraveAnswer(BaseModel):
    web: _BraveResults = _BraveResults()
    """Missing where nothing was found."""


@dataclass(frozen=True)
class SearchServer:
    """One kind of server."""

    address: str
    """Where it is unless the connection has a host; empty if the connection needs one."""
    path: str
    parameters: Callable[[str, int], Mapping[str, str]]
    """Of a query, and of how many results are wanted."""
    headers: Callable[[str], Mapping[str, str]]
    """Of the key."""
    results: Callable[[Any], list[FoundDocument]]
    """Of the answer; raises pydantic's ValidationError if it is something else."""
    hints: Mapping[int, str]
    """What an administrator can do about a status."""


def _of_searxng(answer: Any) -> list[FoundDocument]:
    return [
        FoundDocument(title=one.title, url=one.url, date=one.publishedDate or "", text=one.content or "")
        for one in _SearXNGAnswer.model_validate(answer).results
    ]


def _of_brave(answer: Any) -> list[FoundDocument]:
    return [
        FoundDocument(title=one.title, url=one.url, date=one.page_age or "", text=one.description or "")
        for one in _BraveAnswer.model_validate(answer).web.results
    ]


SEARCH_SERVERS: Mapping[SearchKind, SearchServer] = {
    "searxng": SearchServer(
        address="",
        path="/search",
        parameters=lambda query, most: {"q": query, "format": "json"},
        headers=lambda key: {"authorization": f"Bearer {key}"} if key else {},
        results=_of_searxng,
        hints={403: "list json below search.formats in its settings.yml"},
    ),
    "brave": SearchServer(
        address="https://api.search.brave.com",
        path="/res/v1/web/search",
        parameters=lambda query, most: {"q": query, "count": str(most), "text_decorations": "false"},
        headers=lambda key: {"x-subscription-token": key},
        results=_of_brave,
        hints={401: "give its key as the connection's password", 422: "give its key as the connection's password"},
    ),
}


def shortened_query(query: str) -> str:
    """Return the first words of a query, as many as every server takes."""
    return " ".join(query.split()[:MOST_WORDS])[:MOST_CHARS]
