"""The corpus of a run: stored when the run is prepared, and found again by each of its tasks."""

from typing import TYPE_CHECKING

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.training.run import TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.store.corpora import SourceCorpus, StoredCorpus


def store_corpus(run: TrainingRun, config: TrainConfig) -> str:
    """Store what data.corpus leads to, unless it is stored; return its hash, or an empty text if it is unset.

    Raises:
        DataError: there is no such folder, or a file in it is of no use, such as a link; the text names it.
    """
    from skillopt_airflow.store import corpora

    source = source_corpus(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    return "" if source is None else corpora.store_corpus(run.store, run.ref.storage.prefix, source)


def source_corpus(benchmark: str, config: TrainConfig, client: "S3Client") -> "SourceCorpus | None":
    """Return the corpus where the user keeps it, if data.corpus is set."""
    from skillopt_airflow.store.corpora import SourceCorpus

    address = config.data.corpus
    return None if address is None else SourceCorpus(address, benchmarks.folder(benchmark), client)


def stored_corpus(run: TrainingRun) -> "StoredCorpus | None":
    """Return the run's corpus, if it has one."""
    from skillopt_airflow.store.corpora import StoredCorpus

    sha256 = run.record.corpus
    return StoredCorpus(run.store, run.ref.storage.prefix, sha256) if sha256 else None
