"""The stored files of a run's items."""

from collections.abc import Iterable, Mapping, Sequence

from skillopt_airflow.core.pictures import Pictures, marked
from skillopt_airflow.core.types import Item, ItemFile, Rollout, Split
from skillopt_airflow.training.run import TrainingRun


def contents(run: TrainingRun, files: Sequence[ItemFile]) -> Mapping[str, bytes]:
    """Return what the files hold, by name."""
    from skillopt_airflow.store.files import FileStore

    kept = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: kept.get(file.sha256) for file in files}


def shown_items(run: TrainingRun, split: Split, rollouts: Iterable[Rollout]) -> list[Item]:
    """Return the items whose pictures the target was shown in these rollouts."""
    shown = {
        one.trajectory.item_id for one in rollouts if any(marked(said.content) for said in one.trajectory.messages)
    }
    return run.items_of(split, sorted(shown)) if shown else []


def pictures(run: TrainingRun, items: Iterable[Item]) -> Mapping[str, Pictures]:
    """Return the items' pictures by the ids of these."""
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}
