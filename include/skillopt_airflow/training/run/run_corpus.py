"""The corpus of a run: stored when the run is prepared, and found again by each of its tasks."""

from typing import TYPE_CHECKING

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.training.run.run import TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.data.corpora import SourceCorpus, StoredCorpus


def store_corpus(run: TrainingRun, config: TrainConfig) -> str:
    """Store the corpus of data.corpus unless it's stored; return its hash, or "" without a corpus.

    Raises:
        DataError: the folder is missing, or a file in it is unusable, such as a link; the message names it.
    """
    from skillopt_airflow.store.data import corpora

    source = source_corpus(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    return "" if source is None else corpora.store_corpus(run.store, run.ref.storage.prefix, source)


def source_corpus(benchmark: str, config: TrainConfig, client: "S3Client") -> "SourceCorpus | None":
    """Return the corpus at data.corpus, if it's set."""
    from skillopt_airflow.store.data.corpora import SourceCorpus

    address = config.data.corpus
    return None if address is None else SourceCorpus(address, benchmarks.folder(benchmark), client)


def stored_corpus(run: TrainingRun) -> "StoredCorpus | None":
    """Return the run's corpus, if it has one, and mark it as used for the cleanup.

    Raises:
        DataError: it is no longer stored.
    """
    from skillopt_airflow.store.data.corpora import StoredCorpus

    sha256 = run.record.corpus
    if not sha256:
        return None
    corpus = StoredCorpus(run.store, run.ref.storage.prefix, sha256)
    try:
        corpus.keep()
    except ObjectMissing as error:
        raise DataError(
            f"the documents of run {run.ref.run} are no longer stored: the cleanup removes a corpus that no run has "
            "used for retention.trajectory_days. Clear the training's first task, or trigger another run with the same "
            f"data.corpus, to store them again ({error})"
        ) from error
    return corpus
