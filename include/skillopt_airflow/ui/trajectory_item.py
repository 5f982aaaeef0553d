"""An item as a page shows it: what a skill's rollout of it was, step by step, maybe beside another skill's."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.item_scores import metric_value
from skillopt_airflow.core.pictures import Pictures
from skillopt_airflow.core.types import Item, ItemFile
from skillopt_airflow.ui.trajectory_query import TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Subject
from skillopt_airflow.ui.trajectory_turns import Conversation, conversation, pretty

if TYPE_CHECKING:
    from skillopt_airflow.store.parquet import RolloutRow
    from skillopt_airflow.store.rollout_browser import RolloutBrowser
    from skillopt_airflow.store.rollout_table import RolloutKey

MOST_PICTURES = 8
"""Pictures of an item that are shown."""


class FileView(NamedTuple):
    """A file of the item."""

    name: str
    size: int | None
    """Bytes; None if it is not stored any more."""


class ItemView(NamedTuple):
    """The item itself, as a run stored it."""

    record: str
    """JSON of what the target may see."""
    reference: str
    """JSON of what the scorer needs."""
    files: tuple[FileView, ...]
    reference_files: tuple[FileView, ...]
    task_types: tuple[str, ...]


class Try(NamedTuple):
    """A rollout of the item."""

    row: "RolloutRow"
    score: float | None
    """What a gate compares."""


class Side(NamedTuple):
    """A skill's rollout of the item."""

    label: str
    row: "RolloutRow | None"
    """None where there is none."""
    score: float | None
    """What a gate compares."""
    said: Conversation | None
    tries: Sequence[Try]
    """All rollouts of the item, the one that counts among them."""

    @property
    def started(self) -> datetime | None:
        """Return when the target began; None where nothing did."""
        seconds = 0.0 if self.row is None else self.row.rollout.trajectory.started
        return datetime.fromtimestamp(seconds, UTC) if seconds else None


class Opened(NamedTuple):
    """All of the page."""

    item_id: str
    sides: tuple[Side, ...]
    difference: float | None
    """The score of the first side less that of the second."""
    item: ItemView | None
    """None where no run has it any more."""


def opened(subject: Subject, asked: TrajectoryQuery) -> Opened:
    """Return the item that is asked for.

    Raises:
        DataError: the skill has no rollout of such an item.
        SkillOptError: it cannot be read.
    """
    from skillopt_airflow.store.rollout_browser import RolloutBrowser

    if subject.key is None:
        raise DataError("nothing was rolled out here")
    browser = RolloutBrowser(subject.store, subject.prefix)
    item_id = asked.item if asked.item else browser.item_id(subject.key, asked.mark)
    keys = [(subject.key, subject.label)]
    keys += [] if subject.other is None else [(subject.other, subject.other_label)]
    found = [(label, _tries(browser, key, item_id, asked.mark, subject)) for key, label in keys if item_id is not None]
    if item_id is None or not any(tries for _, tries in found):
        raise DataError("there is no rollout of such an item; rollouts are removed after retention.trajectory_days")
    item = _item(subject, item_id, [row for _, tries in found for row in tries])
    thumbnails = {} if item is None else _thumbnails(subject, item.files)
    sides = tuple(_side(subject, label, tries, thumbnails) for label, tries in found)
    scores = [side.score for side in sides if side.score is not None]
    return Opened(
        item_id=item_id,
        sides=sides,
        difference=scores[0] - scores[1] if len(scores) > 1 else None,
        item=None if item is None else _item_view(subject, item),
    )


def _tries(
    browser: "RolloutBrowser", key: "RolloutKey", item_id: str, mark: str, subject: Subject
) -> "list[RolloutRow]":
    """Return the rollouts of an item that the list counts, too; an earlier content of it has another mark."""
    tries = [row for row in browser.tries(key, item_id) if row.item_fingerprint.startswith(mark)]
    return [row for row in tries if row.run == subject.run] if subject.alone else tries


def _item(subject: Subject, item_id: str, tries: "Sequence[RolloutRow]") -> Item | None:
    """Return the item as it was when it ran, of a run that stored a rollout of it."""
    from skillopt_airflow.store.items import find_item
    from skillopt_airflow.store.keys import RunKeys

    if subject.key is None:
        return None
    for run in dict.fromkeys([*([subject.run] if subject.run else []), *(row.run for row in tries)]):
        keys = RunKeys(subject.prefix, subject.benchmark, run)
        item = find_item(subject.store, keys.items(subject.key.split), item_id)
        if item is not None and item.fingerprint in {row.item_fingerprint for row in tries}:
            return item
    return None


def _side(subject: Subject, label: str, tries: "Sequence[RolloutRow]", thumbnails: Pictures) -> Side:
    from skillopt_airflow.store.rollout_browser import counting

    row, rules = counting(tries, subject.run), subject.rules

    def score(row: "RolloutRow") -> float | None:
        found = row.rollout.score
        return None if found is None else metric_value(found, rules.gate_metric, rules.gate_mixed_weight)

    return Side(
        label=label,
        row=row,
        score=None if row is None else score(row),
        said=None if row is None else conversation(row.rollout.trajectory, thumbnails),
        tries=[Try(one, score(one)) for one in tries],
    )


def _item_view(subject: Subject, item: Item) -> ItemView:
    return ItemView(
        record=pretty(item.public),
        reference=pretty(item.reference),
        files=_files(subject, item.files),
        reference_files=_files(subject, item.reference_files),
        task_types=item.task_types,
    )


def _files(subject: Subject, files: Sequence[ItemFile]) -> tuple[FileView, ...]:
    return tuple(FileView(file.name, _size(subject, file)) for file in files)


def _size(subject: Subject, file: ItemFile) -> int | None:
    from skillopt_airflow.store.keys import item_file

    try:
        return subject.store.size(item_file(subject.prefix, file.sha256))
    except ObjectMissing:
        return None


def _thumbnails(subject: Subject, files: Sequence[ItemFile]) -> dict[str, bytes]:
    """Return small pictures in place of the item's first ones, by name."""
    from skillopt_airflow.store.files import FileStore
    from skillopt_airflow.store.picture_files import thumbnail

    kept, made = FileStore(subject.store, subject.prefix), {}
    for file in [file for file in files if file.picture][:MOST_PICTURES]:
        with suppress(ObjectMissing):
            made[file.name] = thumbnail(kept.get(file.sha256))
    return made
