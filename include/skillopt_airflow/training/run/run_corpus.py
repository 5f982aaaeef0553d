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
    """Store what data.corpus leads to, unless it is stored; return its hash, or an empty text if it is unset.

    Raises:
        DataError: there is no such folder, or a file in it is of no use, such as a link; the text names it.
    """
    from skillopt_airflow.store.data import corpora

    source = source_corpus(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    return "" if source is None else corpora.store_corpus(run.store, run.ref.storage.prefix, source)


def source_corpus(benchmark: str, config: TrainConfig, client: "S3Client") -> "SourceCorpus | None":
    """Return the corpus where the user keeps it, if data.corpus is set."""
    from skillopt_airflow.store.data.corpora import SourceCorpus

    address = config.data.corpus
    return None if address is None else SourceCorpus(address, benchmarks.folder(benchmark), client)


def stored_corpus(run: TrainingRun) -> "StoredCorpus | None":
    """Return the run's corpus, if it has one, which the cleanup keeps for as long as tasks ask for it.

    Raises:
        DataError: it is not stored any more.
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
            f"the documents of run {run.ref.run} are not stored any more: the cleanup removes a corpus that no run "
            "used for retention.trajectory_days; clear the first task of the training, or trigger another run with the "
            f"same documents in data.corpus, and they are stored again ({error})"
        ) from error
    return corpus
