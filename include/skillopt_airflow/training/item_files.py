"""The stored files of a run's items."""

from collections.abc import Iterable, Mapping, Sequence

from skillopt_airflow.core.pictures import Pictures
from skillopt_airflow.core.types import Item, ItemFile
from skillopt_airflow.training.run import TrainingRun


def contents(run: TrainingRun, files: Sequence[ItemFile]) -> Mapping[str, bytes]:
    """Return what the files hold, by name."""
    from skillopt_airflow.store.files import FileStore

    kept = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: kept.get(file.sha256) for file in files}


def pictures(run: TrainingRun, items: Iterable[Item]) -> Mapping[str, Pictures]:
    """Return the items' pictures by the ids of these."""
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}
