"""Partitions of the trajectory table, as its folders tell; no rollout is read."""

from collections.abc import Mapping
from typing import NamedTuple

from skillopt_airflow.core.types import Split
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parts import parts_of


class Partition(NamedTuple):
    """The rollouts of one skill on one split, as their keys tell; `skill` is the beginning of its hash."""

    benchmark: str
    target: str
    harness: str
    split: Split
    skill: str
    draw: int


class RolloutPartitions:
    """The folders below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def of_benchmark(self, benchmark: str) -> list[Partition]:
        """Return what a benchmark has rollouts of, by target, harness, split, skill and draw; lists all keys."""
        found = parts_of(self._store, keys.trajectories_of(self._prefix, benchmark))
        return sorted({_partition(keys.partition_values(key)) for key in found})

    def of_skill(self, benchmark: str, skill: str, target: str = "") -> list[Partition]:
        """Return what there is of a skill (12 digits of its hash), with one target or with all."""
        found = self._below(benchmark, target=target, harness="", split="", skill=skill, draw="")
        return sorted(_partition(values) for values in found)

    def skills_beside(self, partition: Partition) -> list[str]:
        """Return the skills with rollouts of the same target, harness and split, whatever their draws."""
        one = partition
        found = self._below(one.benchmark, target=one.target, harness=one.harness, split=one.split.value, skill="")
        return [values["skill"] for values in found]

    def _below(self, benchmark: str, **columns: str) -> list[dict[str, str]]:
        """Return the values in the columns of the folders that there are; a column without a value has all of them."""
        found = [keys.trajectories_of(self._prefix, benchmark)]
        for column, value in columns.items():
            own = [f"{column}={keys.partition_value(value)}"] if value else []
            found = [f"{folder}{name}/" for folder in found for name in own or self._store.list_folders(folder)]
        return [keys.partition_values(folder) for folder in found]


def _partition(values: Mapping[str, str]) -> Partition:
    split, draw = Split(values["split"]), int(values["draw"])
    return Partition(values["benchmark"], values["target"], values["harness"], split, values["skill"], draw)
