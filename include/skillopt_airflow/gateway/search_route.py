"""The two paths by which a sandbox asks the run's search, each with one short text."""

import logging
from typing import Annotated

from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.page_fetcher import MAX_ADDRESS_CHARS
from skillopt_airflow.gateway.web_search import SearchFailed, SearchSpent, WebSearch

SEARCH, PAGE = "/search", "/page"

log = logging.getLogger(__name__)


class SearchAsked(Value):
    """The body of a search."""

    query: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class PageAsked(Value):
    """The body of a request for a page."""

    address: Annotated[str, Field(max_length=MAX_ADDRESS_CHARS)]


class SearchRoute:
    """Answers with what was found, or with 400 (it cannot be read), 429 (too much was asked) or 502 (no search)."""

    def __init__(self, search: WebSearch) -> None:
        self._search = search

    def takes(self, scope: Scope) -> bool:
        """Return whether a request is for the search, byte by byte."""
        paths = (SEARCH.encode(), PAGE.encode())
        return scope["method"] == "POST" and scope["raw_path"] in paths and not scope["query_string"]

    async def answer(self, path: str, body: bytes) -> Response:
        """Search, or open a page; queries and addresses are logged."""
        try:
            if path == SEARCH:
                query = SearchAsked.model_validate_json(body).query
                log.info("Search: %.200r", query)
                found = await self._search.search(query)
                return JSONResponse({"results": [one.model_dump() for one in found]})
            address = PageAsked.model_validate_json(body).address
            log.info("Page: %.200r", address)
            return JSONResponse((await self._search.page(address)).model_dump())
        except ValidationError as error:
            reasons = "; ".join(line["msg"] for line in error.errors(include_input=False, include_url=False))
            return JSONResponse({"error": f"the request is not usable: {reasons}"}, 400)
        except SearchSpent as error:
            return JSONResponse({"error": str(error)}, 429)
        except (SearchFailed, StoreError) as error:
            log.warning("%s", error)
            return JSONResponse({"error": str(error)}, 502)
