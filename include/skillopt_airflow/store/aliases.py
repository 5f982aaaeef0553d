"""Aliases of published skills: the only objects that are ever overwritten, moved by conditional writes alone."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import AwareDatetime

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore, model_bytes


class Alias(Document):
    """The version that an alias names, and the move that led to it."""

    version: str
    sha256: str
    run: str
    """The run that moved it here."""
    previous: str | None
    """The version that it left."""
    moved: AwareDatetime
    """UTC."""
    sequence: int = 0
    """Number of the move: how many aliases the history has before it."""
    reason: str = ""
    """Reason for the move, in the words of who moved it."""
    rolled_back: bool = False
    """Whether it went back; false if a publication led to it."""


class ChampionAlias:
    """The alias that deployments follow. Before it moves, its content is filed in its history."""

    def __init__(self, store: ObjectStore, keys: ArtifactKeys) -> None:
        self._store = store
        self._keys = keys

    def read(self) -> Alias | None:
        """Return what it says now; None before the first publication."""
        return self._read()[0]

    def history(self) -> list[Alias]:
        """Return everything it ever said, oldest first, the present last."""
        # The present one first: what it leaves meanwhile is filed by then, what it comes to is not listed.
        present = self.read()
        if present is None:
            return self._filed()
        return [alias for alias in self._filed() if alias.sequence < present.sequence] + [present]

    def was(self, sequence: int) -> Alias | None:
        """Return what it said after so many moves; None if that was never filed, or is what it says now."""
        return self._store.find_model(self._keys.champion_was(sequence), Alias)

    def versions(self) -> set[str]:
        present = self.read()
        return {alias.version for alias in (*self._filed(), *([] if present is None else [present]))}

    def ever_named(self) -> set[str]:
        """Return every version that it named or was about to name, also where that is lost with it or was prevented."""
        return self.versions() | {key.removeprefix(self._keys.named) for key in self._store.list_keys(self._keys.named)}

    def move(
        self, version: str, sha256: str, run: str, reason: str, seen: Alias | None, *, rolled_back: bool = False
    ) -> Alias:
        """Name a version, if nobody moved the alias since `seen`; safe to repeat after a failure at any point.

        Returns the alias that stands: another run's, if that one moved it to the same skill first.

        Raises:
            Conflict: somebody moved it to another skill; the text says who.
        """
        present, etag = self._read()
        if present != seen:
            return self._standing(version, sha256, seen, rolled_back=rolled_back)
        # What it says is filed when it is left, which does not happen to an alias that is removed or overwritten.
        with suppress(Conflict):
            self._store.create(self._keys.naming(version), b"")
        if present is not None:
            # Another publisher may have filed it, and lost the race to move the alias.
            with suppress(Conflict):
                self._store.create_model(self._keys.champion_was(present.sequence), present)
        wanted = Alias(
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
            if present is None:
                self._store.create_model(self._keys.champion, wanted)
            else:
                self._store.replace(self._keys.champion, model_bytes(wanted), etag)
        except (Conflict, ObjectMissing):
            return self._standing(version, sha256, seen, rolled_back=rolled_back)
        return wanted

    def _read(self) -> tuple[Alias | None, str]:
        """Return the alias and its tag, which is empty if there is no alias."""
        try:
            return self._store.get_tagged_model(self._keys.champion, Alias)
        except ObjectMissing:
            return None, ""

    def _filed(self) -> list[Alias]:
        return [self._store.get_model(key, Alias) for key in self._store.list_keys(self._keys.champion_history)]

    def _standing(self, version: str, sha256: str, seen: Alias | None, *, rolled_back: bool) -> Alias:
        """Return the alias as somebody else left it, if it names the wanted skill.

        The answer to our own write may have been lost, or another run published the same skill.
        """
        present = self.read()
        if present is not None and present.sha256 == sha256 and present != seen:
            return present
        stands = "the alias was removed"
        if present is not None:
            stands = f"run {present.run} made {present.version} the champion"
        advice = f"{version} is stored but not the champion, with which it has to be compared first"
        if rolled_back:
            advice = "look at that champion, and ask for the rollback again if it is still wanted"
        raise Conflict(f"{self._store.address(self._keys.champion)}: {stands} while {version} was on its way; {advice}")


def champion_before(history: Sequence[Alias]) -> Alias | None:
    """Return the version that the champion followed; a rollback leaves behind all that came after its target.

    A former champion that is published again follows the one that it was better than.
    """
    standing: list[Alias] = []
    for alias in history:
        earlier = [one.sha256 for one in standing]
        if alias.rolled_back and alias.sha256 in earlier:
            standing = standing[: earlier.index(alias.sha256)]
        standing = [*(one for one in standing if one.sha256 != alias.sha256), alias]
    return standing[-2] if len(standing) > 1 else None
