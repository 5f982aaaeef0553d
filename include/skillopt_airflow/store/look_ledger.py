"""The ledger of looks: every comparison that decides what is published, by the items that it is made on."""

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

    def looks(self, fingerprint: str) -> list[Look]:
        """Return the looks at the items with this fingerprint, in order."""
        return [self._store.get_model(key, Look) for key in self._store.list_keys(self._keys.looks(fingerprint))]

    def enter(self, fingerprint: str, question: Question, split: Split, items: int, run: str, publication: str) -> Look:
        """Enter a look, and return it; the same question is the same look, whoever asks, and keeps its number.

        Args:
            fingerprint: of the items.
            question: what is compared.
            split: which split of the run the items are.
            items: their number.
            run: the run that asks.
            publication: name of its attempt to publish.
        """
        while True:
            before = self.looks(fingerprint)
            asked = next((look for look in before if look.question == question), None)
            if asked is not None:
                return asked
            look = Look(
                # Behind one that somebody removed, the others keep their numbers.
                number=before[-1].number + 1 if before else 1,
                split=split,
                items=items,
                question=question,
                run=run,
                publication=publication,
                entered=datetime.now(UTC),
            )
            try:
                self._store.create_model(self._keys.look(fingerprint, look.number), look)
            except Conflict:
                # Another publisher took the number.
                continue
            return look
