"""A search under test: a real server of its kind, a memory without a store, and a gateway that leads to both."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue, SecretStr

from skillopt_airflow.gateway.web_search import SearchUpstream, WebSearch
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider

KEY = "search-key-0123456789"
Answered = tuple[int, Any]


@dataclass
class SearchServer:
    """Refuses what its kind of server does not document."""

    kind: str
    answer: Callable[[str], Answered]
    """Status and results, or a whole document, of a query."""
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Of every answer."""
    port: int = 0

    def answered(self, request: Asked) -> Reply:
        status, document = self.found(request)
        return Reply(status, json.dumps(document).encode(), self.headers)

    def found(self, request: Asked) -> Answered:
        given = request.query
        if self.kind == "searxng" and (request.path, given.get("format")) != ("/search", "json"):
            return 403, "Forbidden"
        if self.kind == "brave":
            fits = 1 <= int(given.get("count", 0)) <= 20 and len(given["q"]) <= 400
            if request.path != "/res/v1/web/search" or not fits:
                return 422, {"error": "unprocessable"}
            if request.headers["x-subscription-token"] != KEY:
                return 422, {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}
        if self.kind == "tavily":
            if (request.method, request.path) != ("POST", "/search") or not 0 < request.body["max_results"] <= 20:
                return 400, {"detail": {"error": "bad request"}}
            if request.headers.get("authorization") != f"Bearer {KEY}":
                return 401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}
            given = {"q": request.body["query"]}
        self.asked.append(given["q"])
        status, found = self.answer(given["q"])
        if not isinstance(found, list):
            return status, found
        return status, {"web": {"results": found}} if self.kind == "brave" else {"results": found}


@contextmanager
def search_server(kind: str, answer: Callable[[str], Answered]) -> Iterator[SearchServer]:
    serving = SearchServer(kind, answer)
    with ScriptedProvider(serving.answered) as provider:
        serving.port = provider.server_port
        yield serving


@dataclass
class Memory:
    """A `SearchMemory` that others may share."""

    kept: dict[str, JsonValue] = field(default_factory=dict)

    def recall(self, query: str) -> JsonValue:
        return self.kept.get(query)

    def keep(self, query: str, answer: JsonValue) -> JsonValue:
        return self.kept.setdefault(query, answer)


def web_search(server: SearchServer, memory: Memory | None = None) -> WebSearch:
    return WebSearch(
        upstream=SearchUpstream(
            conn_id="skillopt_search",
            kind=server.kind,  # type: ignore[arg-type]
            base_url=f"http://127.0.0.1:{server.port}",
            api_key=SecretStr(KEY),
        ),
        memory=memory or Memory(),
        left=100,
    )
