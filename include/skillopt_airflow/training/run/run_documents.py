"""The documents that a run reads: its corpus, and the stored answers of its web searches."""

from typing import TYPE_CHECKING

from pydantic import JsonValue

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, canonical_json, sha256
from skillopt_airflow.gateway.web_search import WebSearch
from skillopt_airflow.store.data import corpora
from skillopt_airflow.store.keys import searches_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run.run import TrainingRun, search_day

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def store_corpus(run: TrainingRun, config: TrainConfig) -> str:
    """Store the corpus of data.corpus unless it's stored; return its hash, or "" without a corpus.

    Raises:
        DataError: the folder is missing, or a file in it is unusable, such as a link; the message names it.
    """
    source = source_corpus(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    return "" if source is None else corpora.store_corpus(run.store, run.ref.storage.prefix, source)


def source_corpus(benchmark: str, config: TrainConfig, client: "S3Client") -> corpora.SourceCorpus | None:
    """Return the corpus at data.corpus, if it's set."""
    address = config.data.corpus
    return None if address is None else corpora.SourceCorpus(address, benchmarks.folder(benchmark), client)


def stored_corpus(run: TrainingRun) -> corpora.StoredCorpus | None:
    """Return the run's corpus, if it has one, and keep it from the cleanup; raise DataError if it's gone."""
    if not run.record.corpus:
        return None
    corpus = corpora.StoredCorpus(run.store, run.ref.storage.prefix, run.record.corpus)
    try:
        corpus.keep()
    except ObjectMissing as error:
        raise DataError(
            f"the documents of run {run.ref.run} are no longer stored: the cleanup removes a corpus that no run has "
            "used for retention.trajectory_days. Clear the training's first task, or trigger another run with the same "
            f"data.corpus, to store them again ({error})"
        ) from error
    return corpus


PER_TURN = 4
"""Maximum searches per answer of the target; most answers need one."""


class StoredAnswer(Document):
    """A stored answer to a query."""

    asked: str
    answer: JsonValue


class StoredSearches:
    """A `SearchMemory` in a day's folder of the object store; of concurrent answers, the first one is used.

    `shaping` has the settings that affect an answer.
    """

    def __init__(self, store: ObjectStore, folder: str, shaping: JsonObject) -> None:
        self._store, self._folder, self._shaping = store, folder, shaping

    def recall(self, query: str) -> JsonValue:
        found = self._store.find_model(self._key(query), StoredAnswer)
        return None if found is None else found.answer

    def keep(self, query: str, answer: JsonValue) -> JsonValue:
        return self._store.first_model(self._key(query), StoredAnswer(asked=query, answer=answer)).answer

    def _key(self, query: str) -> str:
        return f"{self._folder}{sha256(canonical_json([self._shaping, query]))[:32]}.json"


def run_search(run: TrainingRun, items: int) -> WebSearch | None:
    """Return the web search for a task with this number of items; None if the run has none."""
    search = run.config.search
    if search.conn_id is None:
        return None
    folder = f"{searches_of(run.ref.storage.prefix, run.ref.benchmark)}{search_day(run.record.created)}/"
    return WebSearch(
        upstream=run.connections.search(search),
        memory=StoredSearches(run.store, folder, search.model_dump(mode="json")),
        left=items * run.config.model.max_turns * PER_TURN,
    )
