"""The items of the installed benchmarks, found by their prompts."""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast

from local.standin.conversation import without_pictures
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.core.values.types import Item, ItemFile, JsonObject
from skillopt_airflow.store.data.datasets import partition_uri, read_partition
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.store.data.places import locate
from skillopt_airflow.tasks.protocols import Benchmark, OffersTools, PlaysSession
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.prepare.records_to_items import read_splits

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

RELOAD_SECONDS = 30.0
"""An unknown prompt reloads the data after this time, or if a benchmark's folder has changed."""
_GAME = re.compile(r"Your task is to: [^\"\\\n]+")


@dataclass(frozen=True, eq=False)
class KnownItem:
    """An item with everything that its right answer needs."""

    benchmark: Benchmark
    item: Item
    files: Callable[[Sequence[ItemFile]], dict[str, bytes]]
    """Reads files of the item by name."""
    neighbors: Sequence[Item] = ()
    """Items of the same split, for plausible wrong answers."""
    alike: Sequence[Item] = ()
    """Items with the same prompt, including this one, that differ only in their files."""

    @property
    def prompts(self) -> set[str]:
        """Return strings that identify the item; each of its prompts contains one."""
        if isinstance(self.benchmark, PlaysSession):
            return {
                line
                for content in self.files(self.item.files).values()
                for line in _GAME.findall(content.decode(errors="replace"))
            }
        prompts = {self.benchmark.messages(self.item.public, "")[-1].content}
        return prompts | ({self.benchmark.task(self.item.public)} if isinstance(self.benchmark, OffersTools) else set())


class Finder(Protocol):
    """Finds items by prompts."""

    def find(self, text: str, pictures: Sequence[bytes] = ()) -> KnownItem | None:
        """Return the item of a prompt; pictures distinguish items with equal prompts."""


class KnownItems:
    """Items by their prompts; thread-safe."""

    def __init__(self, read: Callable[[], Iterable[KnownItem]], state: Callable[[], object] = lambda: None) -> None:
        """`read` loads all items; the value of `state` changes when they may have changed."""
        self._read, self._state = read, state
        self._by_prompt: dict[str, list[KnownItem]] = {}
        self._read_at, self._read_state = float("-inf"), object()
        self._lock = Lock()

    def find(self, text: str, pictures: Sequence[bytes] = ()) -> KnownItem | None:
        plain = _plain(text)
        with self._lock:
            matches = self._matching(plain)
            if not matches and self._is_old():
                self._load()
                matches = self._matching(plain)
        shown = set(pictures)
        pictured = (known for known in matches if shown & set(known.files(known.item.files).values()))
        return next(pictured, matches[0]) if len(matches) > 1 and shown else next(iter(matches), None)

    def _matching(self, plain: str) -> list[KnownItem]:
        """Return the items with this prompt, else those with the longest prompt inside it."""
        exact = self._by_prompt.get(plain)
        if exact is not None:
            return exact
        longest = max((prompt for prompt in self._by_prompt if prompt in plain), key=len, default=None)
        return [] if longest is None else self._by_prompt[longest]

    def _is_old(self) -> bool:
        return self._state() != self._read_state or time.monotonic() - self._read_at > RELOAD_SECONDS

    def _load(self) -> None:
        by_prompt, self._read_state = defaultdict(list), self._state()
        for known in self._read():
            for prompt in known.prompts:
                by_prompt[_plain(prompt)].append(known)
        for group in by_prompt.values():
            group[:] = [replace(known, alike=[one.item for one in group]) for known in group]
        self._by_prompt, self._read_at = dict(by_prompt), time.monotonic()


def of_benchmarks() -> Iterator[KnownItem]:
    """Yield the items of all benchmarks with readable data, including the nights' items."""
    for name in benchmarks.names():
        try:
            yield from of_benchmark(name)
        except SkillOptError as error:
            log.warning("The stand-in can't read the items of %s: %s", name, error)


def state_of_benchmarks() -> object:
    """Return the modification times of all files of the benchmarks."""
    times: dict[str, int] = {}
    for name in benchmarks.names():
        with suppress(SkillOptError):
            times |= {str(path): path.stat().st_mtime_ns for path in benchmarks.folder(name).rglob("*")}
    return times


def s3_client(config: TrainConfig) -> "S3Client":
    """Return an S3 client if the data is in a bucket."""
    addresses = (config.data.uri, config.data.corpus, config.data.split_manifest)
    if not any(address is not None and address.startswith("s3://") for address in addresses):
        return cast("S3Client", None)
    from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections

    return AirflowConnections().s3_client(config.storage)


def of_benchmark(name: str) -> Iterator[KnownItem]:
    """Yield the items of a benchmark.

    Raises:
        SkillOptError: the configuration or the data is unreadable.
    """
    config = benchmark_config(name)
    benchmark, root = benchmarks.load(name, config.task), benchmarks.folder(name)
    client = s3_client(config)
    files = DataFiles.of(config.data, root, client).contents
    splits, _ = read_splits(name, config, client)
    for records in [*splits.values(), *_fresh(config, root, client)]:
        items = _usable(benchmark, records)
        yield from (KnownItem(benchmark, item, files, items) for item in items)


def _usable(benchmark: Benchmark, records: Sequence[JsonObject]) -> list[Item]:
    items = []
    for record in records:
        try:
            if not isinstance(record, UnreadableRecord):
                items.append(benchmark.item(record))
        except Exception as error:  # noqa: BLE001 - the benchmark's own code
            log.debug("A record is not usable: %s", error)
    return items


def _fresh(config: TrainConfig, root: Path, client: "S3Client") -> Iterator[list[JsonObject]]:
    """Yield the records of each night's partition."""
    folder = partition_uri(config.data, config.regate, "").removesuffix("date=")
    dates = {path.partition("/")[0] for path in locate(folder, root, client).paths("date=*", "a night's items")}
    for date in sorted(dates):
        yield read_partition(f"{folder}{date}", root, client) or []


def _plain(text: str) -> str:
    """Normalize a prompt: remove pictures and collapse whitespace."""
    return " ".join(without_pictures(text).split())
