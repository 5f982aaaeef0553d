"""Turn a dataset's records into items with files; a few unusable records only fail themselves."""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from pydantic_core import PydanticSerializationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, ItemFile, ItemImage, JsonObject, Split, canonical_json, sha256
from skillopt_airflow.quality.fresh_items import content
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.quality.records import TOLERATED, Need, check_splits, unusable_records
from skillopt_airflow.store.data.data_manifest import data_manifest
from skillopt_airflow.store.data.datasets import ALL, read_records, read_split_list
from skillopt_airflow.store.data.files import DataFiles, FileStore
from skillopt_airflow.store.data.picture_files import size_of
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.tasks.record_fields import UnreadableRecord, task_types
from skillopt_airflow.tasks.splits import place_id, split_by_list, split_by_ratio
from skillopt_airflow.training.prepare.data_checks import stop_if_failed
from skillopt_airflow.training.run.run import TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

Items = Mapping[Split, list[Item]]
LONG_TEXT = 300
"""Minimum characters of a field that may be a document shared by items."""
Part = TypeVar("Part", bound=str)


def read_items(run: TrainingRun, config: TrainConfig, needs: Sequence[Need] = ()) -> tuple[Items, QualityReport]:
    """Read the items of all splits, with quality checks; `needs` come from the configuration.

    Raises:
        DataError: a file, record or split is unusable; the message names it.
    """
    records, notes = read_splits(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    return checked_items(run, config, f"data.uri = {config.data.uri}", records, needs, notes)


def read_splits(
    name: str, config: TrainConfig, client: "S3Client"
) -> tuple[dict[Split, list[JsonObject]], tuple[str, ...]]:
    """Return a dataset's records by split, up to `data.limit`, and the notes of `without_duplicates`.

    Raises:
        DataError: a folder, file or bucket is missing, or a file has no records.
    """
    data, root = config.data, benchmarks.folder(name)
    read, notes = without_duplicates(config, read_records(data.uri, root, data.split_mode, client))
    if data.split_manifest is not None:
        everything = [record for rows in read.values() for record in rows]
        splits = _manifest_splits(name, config, data.split_manifest, everything, client)
    elif ALL in read:
        benchmark = benchmarks.load(name, config.task)
        groups = [_group(benchmark, record) for record in read[ALL]]
        splits = split_by_ratio(read[ALL], data.split_ratio, data.split_seed, groups)
    else:
        splits = {Split(name): rows for name, rows in read.items()}
    return {split: rows[: data.limit] for split, rows in splits.items()}, notes


def without_duplicates(
    config: TrainConfig, read: Mapping[Part, list[JsonObject]]
) -> tuple[dict[Part, list[JsonObject]], tuple[str, ...]]:
    """Remove duplicate records if the section `task` names no id column; return the others and a note.

    With an adapter or `task.id`, a repeated id is an error instead.
    """
    if config.task is None or config.task.get("id") is not None:
        return dict(read), ()
    first: dict[str, str] = {}
    kept: dict[Part, list[JsonObject]] = {part: [] for part in read}
    copies = []
    for part, rows in read.items():
        for number, record in enumerate(rows, start=1):
            place = f"{part} row {number}".removeprefix("all ")
            key = place if isinstance(record, UnreadableRecord) else sha256(canonical_json(record))
            same = first.setdefault(key, place)
            if same == place:
                kept[part].append(record)
            else:
                copies.append(f"{place}, which repeats {same}")
    if not copies:
        return kept, ()
    note = f"{len(copies)} of {sum(map(len, read.values()))} records are copies and left out, such as {copies[0]}"
    log.warning("%s", note)
    return kept, (note,)


def shared_contents(items: Items) -> list[str]:
    """Return a note per held-out split with items equal to train items under other ids."""

    def contents(split: Split) -> list[tuple[str, str]]:
        rows = (item for item in items.get(split, ()) if not item.unusable and (item.public or item.files))
        return [(content(item), item.id) for item in rows]

    learned, notes = dict(contents(Split.TRAIN)), []
    for split in (Split.VAL, Split.TEST, Split.PUBLISH):
        same = [(found, learned[key]) for key, found in contents(split) if key in learned]
        if same:
            notes.append(
                f"{len(same)} items of the {split} split have the same content as items of the train split under other "
                f"ids, such as {same[0][0]} and {same[0][1]}. Remove them from one: scores on {split} are too high"
            )
    return notes


def shared_documents(items: Items) -> list[str]:
    """Return a note per pair of splits whose items share long texts or files and have no groups.

    Scores on the same document aren't independent, so a test may mistake luck for a gain. Content of more than half of
    a split's items isn't a document, but part of the task.
    """
    if any(item.group for rows in items.values() for item in rows):
        return []
    had: dict[str, Counter[Split]] = defaultdict(Counter)
    for split, rows in items.items():
        for item in rows:
            for document in _documents(item):
                had[document][split] += 1
    shared: Counter[tuple[Split, Split]] = Counter()
    for splits in had.values():
        if all(count <= len(items[split]) / 2 for split, count in splits.items()):
            shared.update(combinations(sorted(splits), 2))
    return [
        f"items of the splits {one} and {other} share {count} documents. Set task.group to the field that names an "
        "item's document, so that items of one document stay in one split and count as one observation"
        for (one, other), count in shared.items()
    ]


def _documents(item: Item) -> set[str]:
    texts = {sha256(text) for text in item.public.values() if isinstance(text, str) and len(text) >= LONG_TEXT}
    return texts | {file.sha256 for file in item.files if file.sha256}


def _manifest_splits(
    name: str, config: TrainConfig, manifest: str, records: Sequence[JsonObject], client: "S3Client"
) -> dict[Split, list[JsonObject]]:
    """Return the records that the manifest lists; raise DataError if it can't be read or doesn't fit them."""
    benchmark, listed = benchmarks.load(name, config.task), read_split_list(manifest, benchmarks.folder(name), client)
    identities = [_id(benchmark, record) for record in records]
    try:
        splits = split_by_list(records, identities, {split: part.ids for split, part in listed.splits.items()})
    except DataError as error:
        raise DataError(f"data.split_manifest = {manifest}: {error}") from error
    left_out = len(records) - sum(map(len, splits.values()))
    if left_out > 0:
        log.info("%d of %d records are in no split of data.split_manifest, and left out", left_out, len(records))
    return splits


def manifest_changes(run: TrainingRun, config: TrainConfig, items: Items) -> list[str]:
    """Return a note per split whose items changed since the manifest was written."""
    manifest = config.data.split_manifest
    if manifest is None or config.data.limit is not None:
        return []
    client = run.connections.s3_client(config.storage)
    listed = read_split_list(manifest, benchmarks.folder(run.ref.benchmark), client).splits
    now = data_manifest(config.data, items).splits
    return [
        f"the contents of the {split} split changed since {manifest} listed its ids"
        for split, part in listed.items()
        if part.fingerprint and part.fingerprint != now[split].fingerprint
    ]


def checked_items(
    run: TrainingRun,
    config: TrainConfig,
    source: str,
    records: Mapping[Split, list[JsonObject]],
    needs: Sequence[Need] = (),
    notes: Sequence[str] = (),
) -> tuple[Items, QualityReport]:
    """Check records and turn them into items; `source` names their origin.

    A few unusable records become failing items with the reason. The notes are shown with the results.

    Raises:
        DataError: a split is unusable; the message names its records.
    """
    benchmark = benchmarks.load(run.ref.benchmark, config.task)
    quality = check_splits(
        source,
        {str(split): rows for split, rows in records.items()},
        benchmark.identity,
        benchmark.text_columns,
        benchmark.list_columns,
        needs,
    )
    quality = quality.model_copy(update={"notes": (*quality.notes, *notes)})
    stop_if_failed(run, quality)
    unusable = unusable_records(quality)
    seen: set[str] = set()
    items = {split: _items(benchmark, split, rows, unusable[split], seen) for split, rows in records.items()}
    if config.data.task_type is not None:
        items = {split: _with_task_types(rows, records[split], config.data.task_type) for split, rows in items.items()}
    _check_few_unusable(f"{source}: ", items)
    return items, quality


def store_files(run: TrainingRun, items: Items, folder: DataFiles) -> Items:
    """Store the items' files by content hash; return the items with the hashes.

    Items with missing or too large files become failing items, if there are few.

    Raises:
        DataError: there are too many; the message names the first one and its file.
    """
    kept = FileStore(run.store, run.ref.storage.prefix)

    def stored(item: Item) -> Item:
        if not (item.files or item.reference_files or item.image):
            return item
        try:
            contents = {"files": folder.contents(item.files), "reference_files": folder.contents(item.reference_files)}
            image_files = folder.contents(item.image.files if item.image else ())
        except DataError as error:
            return _unusable(item.id, str(error))
        found = {
            field: tuple(_stored_file(kept, file, read[file.name]) for file in getattr(item, field))
            for field, read in contents.items()
        }
        image = None if item.image is None else _stored_image(kept, item.image, image_files)
        return item.model_copy(update={**found, "image": image})

    # In file order, so that a table is read sequentially.
    places = [(split, place) for split, rows in items.items() for place in range(len(rows))]
    done = {
        (split, place): stored(items[split][place])
        for split, place in sorted(places, key=lambda at: [file.path for file in items[at[0]][at[1]].files])
    }
    kept_items = {split: [done[split, place] for place in range(len(rows))] for split, rows in items.items()}
    _check_few_unusable("", kept_items)
    return kept_items


def _stored_file(store: FileStore, file: ItemFile, content: bytes) -> ItemFile:
    pixels = size_of(content) if file.picture else None
    return file.model_copy(update={"sha256": store.put(content), "pixels": pixels})


def _stored_image(store: FileStore, image: ItemImage, contents: Mapping[str, bytes]) -> ItemImage:
    stored = {
        field: _stored_file(store, file, contents[file.name])
        for field in ("tree", "requirements")
        if (file := getattr(image, field)) is not None
    }
    return image.model_copy(update=stored)


def unusable_items(items: Items) -> list[str]:
    """Return a note per unusable item, with its row."""
    return [
        f"{_place(split, row, item)} is unusable and counts as failed: {item.unusable}"
        for split, rows in items.items()
        for row, item in enumerate(rows, start=1)
        if item.unusable
    ]


def _group(benchmark: Benchmark, record: JsonObject) -> str:
    try:
        return benchmark.item(record).group
    except Exception:  # noqa: BLE001 - the benchmark's own code; `_items` reports the error with its row
        return ""


def _items(
    benchmark: Benchmark, split: Split, records: Sequence[JsonObject], unusable: Mapping[int, str], seen: set[str]
) -> list[Item]:
    """Return the records as items; `unusable` has reasons by row (1-based), and `seen` collects the ids."""

    def item(row: int, record: JsonObject) -> Item:
        identity = _id(benchmark, record)
        own = identity if identity and identity not in seen else place_id(split, row)
        seen.add(own)
        if isinstance(record, UnreadableRecord):
            return _unusable(own, record.reason)
        if row in unusable:
            return _unusable(own, unusable[row])
        try:
            made = benchmark.item(record)
            # JSON within a field may contain half of a surrogate pair.
            made.model_dump_json()
        except (DataError, PydanticSerializationError) as error:
            return _unusable(own, str(error))
        return made

    return [item(row, record) for row, record in enumerate(records, start=1)]


def _with_task_types(items: Sequence[Item], records: Sequence[JsonObject], key: str) -> list[Item]:
    """Return the items with their records' task types; unusable items have none."""
    return [
        item if item.unusable else item.model_copy(update={"task_types": task_types(record, key)})
        for item, record in zip(items, records, strict=True)
    ]


def _id(benchmark: Benchmark, record: JsonObject) -> str:
    """Return a record's id, or ""."""
    try:
        return "" if isinstance(record, UnreadableRecord) else benchmark.identity(record)
    except DataError:
        return ""


def _unusable(item_id: str, why: str) -> Item:
    return Item(id=item_id, public={}, reference={}, unusable=why)


def _check_few_unusable(source: str, items: Items) -> None:
    """Raise DataError, which names the first one, for a split with too many unusable items."""
    for split, rows in items.items():
        found = [(row, item) for row, item in enumerate(rows, start=1) if item.unusable]
        if len(found) > TOLERATED * len(rows):
            others = f"; {len(found)} of {len(rows)} are unusable" if len(found) > 1 else ""
            raise DataError(f"{source}{_place(split, *found[0])}: {found[0][1].unusable}{others}")


def _place(split: Split, row: int, item: Item) -> str:
    return f"{split} row {row} (id {item.id})"
