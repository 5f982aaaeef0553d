"""The search of a run, and where its answers are stored."""

from typing import TYPE_CHECKING

from pydantic import JsonValue

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, canonical_json, sha256
from skillopt_airflow.store.keys import searches_of

if TYPE_CHECKING:
    from skillopt_airflow.gateway.web_search import WebSearch
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.training.run.run import TrainingRun

PER_TURN = 4
"""Maximum searches per answer of the target; most answers need one."""


class FoundAnswer(Document):
    """A stored answer to a query."""

    asked: str
    answer: JsonValue


class StoredAnswers:
    """A `SearchMemory` in the object store; of concurrent answers, the first one is used."""

    def __init__(self, store: "ObjectStore", folder: str, shaping: JsonObject) -> None:
        """Take the day's folder, and the settings that affect an answer."""
        self._store, self._folder, self._shaping = store, folder, shaping

    def recall(self, query: str) -> JsonValue:
        """Return the stored answer or None."""
        found = self._store.find_model(self._key(query), FoundAnswer)
        return None if found is None else found.answer

    def keep(self, query: str, answer: JsonValue) -> JsonValue:
        """Store the answer unless there is one; return the stored one."""
        return self._store.first_model(self._key(query), FoundAnswer(asked=query, answer=answer)).answer

    def _key(self, query: str) -> str:
        return f"{self._folder}{sha256(canonical_json([self._shaping, query]))[:32]}.json"


def run_search(run: "TrainingRun", items: int) -> "WebSearch | None":
    """Return the web search for a task with this number of items; None if the run has none."""
    search = run.config.search
    if search.conn_id is None:
        return None
    from skillopt_airflow.gateway.web_search import WebSearch

    folder = f"{searches_of(run.ref.storage.prefix, run.ref.benchmark)}{search_day(run.record.created)}/"
    return WebSearch(
        upstream=run.connections.search(search),
        memory=StoredAnswers(run.store, folder, search.model_dump(mode="json")),
        left=items * run.config.model.max_turns * PER_TURN,
    )


def search_settings(config: TrainConfig, created: str) -> JsonObject:
    """Return the search settings that affect a rollout; empty without web search.

    Args:
        created: start of the run, in ISO 8601.
    """
    if config.search.conn_id is None:
        return {}
    return {"search": config.search.model_dump(mode="json"), "search_day": search_day(created)}


def search_day(created: str) -> str:
    """Return the day of a run's searches: its first day, so that all candidates get equal results."""
    return created[: len("2026-01-31")]
