"""The searches of one item: through the gateway, or among the documents that the item brings with it."""

import json
from collections.abc import Sequence

from pydantic import TypeAdapter

from skillopt_airflow.core.document_search import FoundDocument, Ranking
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.rollout.gateway_call import posted

MOST_FOUND = 5
"""Of an item's own documents."""
_RESULTS = TypeAdapter(list[FoundDocument])


class SearchLost(Exception):
    """The run's search does not answer, which is not the target's doing."""


class WebSearch:
    """The run's search behind the gateway, for one item.

    Args:
        gateway: path of the gateway's unix socket, or its address.
        patience: seconds after which no answer can come.
    """

    def __init__(self, gateway: str, patience: float) -> None:
        self._gateway, self._patience = gateway, patience
        self.lost = ""
        """Why the search did not answer; empty as long as it does."""
        self.found: list[FoundDocument] = []
        """All results so far."""

    async def search(self, query: str) -> Sequence[FoundDocument]:
        """Return the first results of a query; raise SearchLost, or DataError if the query is of no use."""
        results = _RESULTS.validate_python((await self._asked({"query": query}))["results"])
        self.found += results
        return results

    async def _asked(self, body: JsonObject) -> JsonObject:
        try:
            answer = await posted(self._gateway, "/search", json.dumps(body).encode(), self._patience)
            document: JsonObject = json.loads(answer.body)
        except (OSError, TimeoutError, ValueError) as error:
            raise self._lose(f"the gateway does not answer: {type(error).__name__}") from error
        if answer.status == 200:
            return document
        why = str(document.get("error", answer.status))
        raise DataError(why) if answer.status in (400, 429) else self._lose(why)

    def _lose(self, why: str) -> SearchLost:
        self.lost = why
        return SearchLost(why)


def best_documents(query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
    """Return the documents that go best with a query, by BM25 of title and text."""
    ranking = Ranking(f"{one.title} {one.text}" for one in documents)
    return [documents[place] for place in ranking.best(query, MOST_FOUND)]
