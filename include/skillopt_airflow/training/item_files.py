"""The stored files of a run's items."""

from collections.abc import Iterable, Mapping, Sequence

from skillopt_airflow.core.pictures import Pictures, marked
from skillopt_airflow.core.protocols import Benchmark, PlaysSession
from skillopt_airflow.core.types import Item, ItemFile, Rollout, Split
from skillopt_airflow.training.run import TrainingRun


def contents(run: TrainingRun, files: Sequence[ItemFile]) -> Mapping[str, bytes]:
    from skillopt_airflow.store.files import FileStore

    kept = FileStore(run.store, run.ref.storage.prefix)
    return {file.name: kept.get(file.sha256) for file in files}


def for_container(benchmark: Benchmark, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return what enters a container of an item's files: all, but of a world only what it is made of."""
    return benchmark.world_files(contents) if isinstance(benchmark, PlaysSession) else contents


def shown_items(run: TrainingRun, split: Split, rollouts: Iterable[Rollout]) -> list[Item]:
    """Return the items whose pictures the target was shown in these rollouts."""
    shown = {
        one.trajectory.item_id for one in rollouts if any(marked(said.content) for said in one.trajectory.messages)
    }
    return run.items_of(split, sorted(shown)) if shown else []


def pictures(run: TrainingRun, items: Iterable[Item]) -> Mapping[str, Pictures]:
    return {item.id: contents(run, [file for file in item.files if file.picture]) for item in items}
