"""The ledger of looks: every comparison that decides what is published."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from skillopt_airflow.core.errors import Conflict
from skillopt_airflow.core.looks import Look, Question
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore


class LookLedger:
    """The looks of one benchmark and target: numbered, written once, never removed."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys

    def last(self, records: Collection[str]) -> int:
        """Return the number of the last look at splits that share a record with these marks; 0 if there is none."""
        return max((look.number for look in self._looks(records)[0]), default=0)

    def enter(
        self, records: Sequence[str], question: Question, split: Split, items: int, run: str, publication: str
    ) -> Look:
        """Enter a look, and return it; the same question is the same look, whoever asks, and keeps its number.

        Args:
            records: marks of the records of the whole split.
            question: what is compared.
            split: which split of the run the items are.
            items: the number of those that are looked at.
            run: the run that asks.
            publication: name of its attempt to publish.
        """
        while True:
            before, place = self._looks(records)
            asked = next((look for look in before if look.question == question), None)
            if asked is not None:
                return asked
            look = Look(
                number=1 + max((look.number for look in before), default=0),
                split=split,
                items=items,
                records=tuple(records),
                question=question,
                run=run,
                publication=publication,
                entered=datetime.now(UTC),
            )
            try:
                self._store.create_model(self._keys.look(place), look)
            except Conflict:
                # Another publisher took the place.
                continue
            return look

    def _looks(self, records: Collection[str]) -> tuple[list[Look], int]:
        """Return the looks that share a record with these, and the place of the next look in the ledger."""
        keys, known = self._store.list_keys(self._keys.looks), frozenset(records)
        looks = (self._store.get_model(key, Look) for key in keys)
        shared = [look for look in looks if not known or not look.records or not known.isdisjoint(look.records)]
        # After one that an administrator removed, the others keep their places.
        return shared, 1 + max((ArtifactKeys.place_of(key) for key in keys), default=0)
