"""The stored files of a run's items."""

from collections.abc import Collection, Mapping, Sequence

from skillopt_airflow.core.pictures import Pictures
from skillopt_airflow.core.types import ItemFile, Split
from skillopt_airflow.training.run import TrainingRun


def contents(run: TrainingRun, files: Sequence[ItemFile]) -> Mapping[str, bytes]:
    """Return what the files hold, by name."""
    from skillopt_airflow.store.files import FileStore

    kept = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: kept.get(file.sha256) for file in files}


def pictures(run: TrainingRun, split: Split, ids: Collection[str]) -> Mapping[str, Pictures]:
    """Return the pictures of some items by their ids."""
    items = run.items_of(split, sorted(ids))
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}
