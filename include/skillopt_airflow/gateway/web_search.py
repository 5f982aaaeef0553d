"""A run's web search: results are stored per query, so that all skills get the same ones.

https://docs.searxng.org/dev/search_api.html, https://api-dashboard.search.brave.com/api-reference/web/search/get,
https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx
from pydantic import AliasChoices, BaseModel, Field, JsonValue, SecretStr, TypeAdapter

from skillopt_airflow.core.config.resource_groups import MAX_PAUSE, TRIES, TRY_SECONDS
from skillopt_airflow.core.values.types import Value
from skillopt_airflow.gateway.backends import UNPACKED, is_unpacked, trusted
from skillopt_airflow.gateway.one_try import retry_after
from skillopt_airflow.gateway.redaction import Redaction
from skillopt_airflow.tasks.corpus import FoundDocument

SearchKind = Literal["searxng", "brave", "tavily"]
MAX_CHARS, MAX_WORDS = 400, 50
"""Brave's limits of a query."""


class SearchUpstream(Value):
    """A search server and its credentials, which stay in the gateway's process."""

    conn_id: str
    """The Airflow connection, for messages."""
    kind: SearchKind
    base_url: str = Field(pattern=r"^https?://[^\s/]+")
    api_key: SecretStr = SecretStr("")
    """Empty for a server without keys."""


class _Result(BaseModel):
    """A result with the fields of all kinds of servers."""

    url: str
    title: str = ""
    date: str | None = Field(None, validation_alias=AliasChoices("publishedDate", "page_age", "published_date"))
    raw_content: str | None = None
    content: str | None = None
    description: str | None = None

    @property
    def document(self) -> FoundDocument:
        text = self.raw_content or self.content or self.description or ""
        return FoundDocument(title=self.title, url=self.url, date=self.date or "", text=text[:MAX_TEXT_CHARS])


class _Answer(BaseModel):
    results: list[_Result]


class _BraveAnswer(BaseModel):
    web: _Answer = _Answer(results=[])
    """Missing without results."""


@dataclass(frozen=True)
class SearchServer:
    address: str
    """Default URL; empty if the connection needs a host."""
    path: str
    parameters: Callable[[str, int], Mapping[str, Any]]
    """Function of the query and the number of results."""
    headers: Callable[[str], dict[str, str]]
    """Function of the key."""
    hints: Mapping[int, str]
    """Advice for an administrator, by HTTP status."""
    results: Callable[[Any], list[_Result]] = lambda answer: _Answer.model_validate(answer).results
    """Parses an answer; raises pydantic's ValidationError."""
    posts: bool = False
    """True if the parameters are a JSON body instead of a query string."""


SEARCH_SERVERS: Mapping[SearchKind, SearchServer] = {
    "searxng": SearchServer(
        address="",
        path="/search",
        parameters=lambda query, most: {"q": query, "format": "json"},
        headers=lambda key: {"authorization": f"Bearer {key}"} if key else {},
        hints={403: "list json below search.formats in its settings.yml"},
    ),
    "brave": SearchServer(
        address="https://api.search.brave.com",
        path="/res/v1/web/search",
        parameters=lambda query, most: {"q": query, "count": most, "text_decorations": "false"},
        headers=lambda key: {"x-subscription-token": key},
        hints={401: "give its key as the connection's password", 422: "give its key as the connection's password"},
        results=lambda answer: _BraveAnswer.model_validate(answer).web.results,
    ),
    "tavily": SearchServer(
        address="https://api.tavily.com",
        path="/search",
        parameters=lambda query, most: {"query": query, "max_results": most, "include_raw_content": True},
        headers=lambda key: {"authorization": f"Bearer {key}"},
        hints={401: "give its key as the connection's password"},
        posts=True,
    ),
}


def shortened_query(query: str) -> str:
    return " ".join(query.split()[:MAX_WORDS])[:MAX_CHARS]


MAX_ANSWER_BYTES = 4_000_000
FIRST_PAUSE = 1.0
"""Seconds before the second try. Doubles with each try, and is longer if the server asks for it."""
MAX_RESULTS = 5
MAX_TEXT_CHARS = 12_000
"""Per result."""
_RESULTS = TypeAdapter(list[FoundDocument])


class SearchError(Exception):
    """The search server failed, which isn't the target's fault."""


class SearchLimitExceeded(Exception):
    """A task made more searches than its items can need."""


class SearchMemory(Protocol):
    """A run's answers of one day."""

    def recall(self, query: str) -> JsonValue: ...

    def keep(self, query: str, answer: JsonValue) -> JsonValue:
        """Store an answer, unless another process stored one first. Return the stored answer."""


@dataclass
class WebSearch:
    """The search of one task's sandboxes. Failures aren't stored."""

    upstream: SearchUpstream
    memory: SearchMemory
    left: int
    """Remaining searches."""

    def __post_init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Per query, so that concurrent searches for the same query cost one request."""
        self._not_before = 0.0
        """Monotonic time before which the server asked for no requests (429)."""
        key = self.upstream.api_key.get_secret_value()
        self._redaction = Redaction({key: self.upstream.conn_id} if key else {})

    async def search(self, query: str) -> list[FoundDocument]:
        """Return the first results of a query.

        Raises:
            SearchError: the server failed, also in retries.
            SearchLimitExceeded: the task has searched too often.
        """
        if self.left < 1:
            raise SearchLimitExceeded("this task has searched more often than its items can need")
        self.left -= 1
        query = shortened_query(query)
        async with self._locks[query]:
            results = await asyncio.to_thread(self.memory.recall, query)
            if results is None:
                new = _RESULTS.dump_python(await self._fetch(query), mode="json")
                results = await asyncio.to_thread(self.memory.keep, query, new)
        return _RESULTS.validate_python(results)[:MAX_RESULTS]

    async def _fetch(self, query: str) -> list[FoundDocument]:
        pause = 0.0
        for number in range(TRIES):
            await self._wait(pause)
            pause = FIRST_PAUSE * 2**number
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    status, wait, body = await self._request(query)
                why = f"answered with status {status}"
                if status == 200:
                    return self._read(body)
                if status != 429 and status < 500:
                    break
                pause = min(max(pause, 0.0 if wait is None else wait), MAX_PAUSE / 2)
                if status == 429:
                    self._not_before = max(self._not_before, time.monotonic() + pause)
            except (TimeoutError, httpx.HTTPError) as error:
                status, why = 0, f"did not answer ({type(error).__name__})"
        hint = SEARCH_SERVERS[self.upstream.kind].hints.get(status, "")
        raise self._error(f"the search server {why}{hint and f'; {hint}'}")

    async def _wait(self, pause: float) -> None:
        """Wait for the pause, and after a 429 until the server accepts requests; add up to 100% jitter."""
        least = max(pause, self._not_before - time.monotonic())
        await asyncio.sleep(least * random.uniform(1.0, 2.0))  # noqa: S311

    async def _request(self, query: str) -> tuple[int, float | None, bytes]:
        """Return the status, the seconds that the server asks to wait, and the body."""
        server, upstream = SEARCH_SERVERS[self.upstream.kind], self.upstream
        parameters, key = server.parameters(query, MAX_RESULTS), upstream.api_key.get_secret_value()
        async with (
            httpx.AsyncClient(verify=trusted(), timeout=TRY_SECONDS) as client,
            client.stream(
                "POST" if server.posts else "GET",
                upstream.base_url.rstrip("/") + server.path,
                params=None if server.posts else parameters,
                json=parameters if server.posts else None,
                headers=UNPACKED | server.headers(key) | {"accept": "application/json"},
            ) as response,
        ):
            if not is_unpacked(response):
                raise self._error("the answer is compressed, although the request forbids it")
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise self._error(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            return response.status_code, retry_after(response), self._redaction.redact(bytes(body))

    def _read(self, body: bytes) -> list[FoundDocument]:
        try:
            results = SEARCH_SERVERS[self.upstream.kind].results(json.loads(body))
            return [one.document for one in results[:MAX_RESULTS]]
        except ValueError:
            raise self._error(
                f"the answer isn't a {self.upstream.kind} server's. Check the connection's host and `kind` in its extra"
            ) from None

    def _error(self, message: str) -> SearchError:
        return SearchError(f"connection {self.upstream.conn_id}: {message}")
