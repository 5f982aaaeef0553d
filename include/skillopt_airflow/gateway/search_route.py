"""The path by which a sandbox asks the run's search, with one short text."""

import logging
from typing import Annotated

from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from skillopt_airflow.core.documents import flaws
from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.web_search import SearchFailed, SearchSpent, WebSearch

SEARCH = "/search"
MAX_BYTES = 64 * 1024

log = logging.getLogger(__name__)


class SearchAsked(Value):
    """The body of a search."""

    query: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class SearchRoute:
    """Answers with results, or with 400 (invalid), 413 (too long), 429 (asked too often) or 502 (no search)."""

    def __init__(self, search: WebSearch) -> None:
        self._search = search

    def takes(self, scope: Scope) -> bool:
        """Return whether a request is for the search, byte by byte."""
        return scope["method"] == "POST" and scope["raw_path"] == SEARCH.encode() and not scope["query_string"]

    async def answer(self, body: bytes) -> Response:
        """Search; queries are logged."""
        if len(body) > MAX_BYTES:
            return JSONResponse({"error": f"a search has at most {MAX_BYTES} bytes"}, 413)
        try:
            query = SearchAsked.model_validate_json(body).query
            log.info("Search: %.200r", query)
            found = await self._search.search(query)
            return JSONResponse({"results": [one.model_dump() for one in found]})
        except ValidationError as error:
            return JSONResponse({"error": f"the request is not usable: {flaws(error, 1):.300}"}, 400)
        except SearchSpent as error:
            return JSONResponse({"error": str(error)}, 429)
        except (SearchFailed, StoreError) as error:
            log.warning("%s", error)
            return JSONResponse({"error": str(error)}, 502)
