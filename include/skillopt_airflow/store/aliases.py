"""Aliases of published skills: the only objects that are ever overwritten, and only by conditional writes."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import AwareDatetime

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore, model_bytes


class Alias(Document):
    """The version that an alias names, and the move to it."""

    version: str
    sha256: str
    run: str
    """The run that moved the alias."""
    previous: str | None
    """The previous version."""
    moved: AwareDatetime
    """UTC."""
    sequence: int = 0
    """Number of earlier moves."""
    reason: str = ""
    """Reason for the move, as entered by the user."""
    rolled_back: bool = False
    """True for a rollback, false for a publication."""


class ChampionAlias:
    """The alias that deployments follow. Each move first copies the alias to its history."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys

    def read(self) -> Alias | None:
        """Return the current alias; None before the first publication."""
        return self._read()[0]

    def history(self) -> list[Alias]:
        """Return all aliases, oldest first, including the current one."""
        # The current one is read first: a move after that files it, and the new alias isn't listed.
        current = self.read()
        if current is None:
            return self._filed()
        return [alias for alias in self._filed() if alias.sequence < current.sequence] + [current]

    def find(self, sequence: int) -> Alias | None:
        """Return a previous alias by its number of earlier moves; None if it isn't in the history."""
        return self._store.find_model(self._keys.previous_alias(sequence), Alias)

    def versions(self) -> set[str]:
        current = self.read()
        return {alias.version for alias in (*self._filed(), *([] if current is None else [current]))}

    def ever_named(self) -> set[str]:
        """Return all versions that it named or was about to name, even if the alias was lost or the move failed."""
        return self.versions() | {key.removeprefix(self._keys.named) for key in self._store.list_keys(self._keys.named)}

    def move(
        self, version: str, sha256: str, run: str, reason: str, seen: Alias | None, *, rolled_back: bool = False
    ) -> Alias:
        """Move the alias to a version, if it's still `seen`; safe to repeat after a failure at any point.

        Returns the current alias, which is another run's if that one moved it to the same skill first.

        Raises:
            Conflict: another run moved it to another skill.
        """
        current, etag = self._read()
        if current != seen:
            return self._moved_elsewhere(version, sha256, seen, rolled_back=rolled_back)
        # A removed or overwritten alias isn't in the history, so the name is recorded before the move.
        with suppress(Conflict):
            self._store.create(f"{self._keys.named}{version}", b"")
        if current is not None:
            # Another publisher may have filed it, and lost the race to move the alias.
            with suppress(Conflict):
                self._store.create_model(self._keys.previous_alias(current.sequence), current)
        alias = Alias(
            version=version,
            sha256=sha256,
            run=run,
            previous=None if seen is None else seen.version,
            moved=datetime.now(UTC),
            sequence=len(self._store.list_keys(self._keys.champion_history)),
            reason=reason,
            rolled_back=rolled_back,
        )
        try:
            if current is None:
                self._store.create_model(self._keys.champion, alias)
            else:
                self._store.replace(self._keys.champion, model_bytes(alias), etag)
        except (Conflict, ObjectMissing):
            return self._moved_elsewhere(version, sha256, seen, rolled_back=rolled_back)
        return alias

    def _read(self) -> tuple[Alias | None, str]:
        try:
            return self._store.get_tagged_model(self._keys.champion, Alias)
        except ObjectMissing:
            return None, ""

    def _filed(self) -> list[Alias]:
        return [self._store.get_model(key, Alias) for key in self._store.list_keys(self._keys.champion_history)]

    def _moved_elsewhere(self, version: str, sha256: str, seen: Alias | None, *, rolled_back: bool) -> Alias:
        """Return the current alias if it names the same skill; otherwise raise Conflict.

        The response to our own write may have been lost, or another run published the same skill.
        """
        current = self.read()
        if current is not None and current.sha256 == sha256 and current != seen:
            return current
        change = "the alias was removed"
        if current is not None:
            change = f"run {current.run} made {current.version} the champion"
        advice = f"{version} is stored, and must beat that champion first"
        if rolled_back:
            advice = "Check that champion, and trigger the rollback again if you still want it."
        raise Conflict(
            f"{self._store.address(self._keys.champion)}: {change} before this run could name {version}. {advice}"
        )


def champion_before(history: Sequence[Alias]) -> Alias | None:
    """Return the alias before the champion's.

    A rollback discards all aliases after its target. A previous champion that is published again follows the champion
    that it beat.
    """
    line: list[Alias] = []
    for alias in history:
        earlier = [one.sha256 for one in line]
        if alias.rolled_back and alias.sha256 in earlier:
            line = line[: earlier.index(alias.sha256)]
        line = [*(one for one in line if one.sha256 != alias.sha256), alias]
    return line[-2] if len(line) > 1 else None
