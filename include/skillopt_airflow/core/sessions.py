"""Items that are worlds with a state, in which the target acts turn by turn: what passes between the two."""

from typing import NamedTuple, Protocol

from skillopt_airflow.core.types import Value

WON = "won"
SEALED = "sealed"
"""Folder of what the worlds are made of, until the rollout program has read it."""


class Observation(Value):
    """A view of a world, at first or after an action."""

    text: str
    admissible: tuple[str, ...] = ()
    """Actions that would change something now, where the world can list them."""
    won: bool = False
    """True if the goal is reached; the world takes no action any more."""


class SessionTurn(NamedTuple):
    """An action of the target and what it brought."""

    action: str
    observation: Observation


class Episode(NamedTuple):
    """A session from its beginning up to now."""

    opening: Observation
    turns: tuple[SessionTurn, ...] = ()

    @property
    def now(self) -> Observation:
        """Return what was shown last."""
        return self.turns[-1].observation if self.turns else self.opening

    def after(self, action: str, observation: Observation) -> "Episode":
        """Return the episode with one more turn."""
        return self._replace(turns=(*self.turns, SessionTurn(action, observation)))

    @property
    def outcome(self) -> str:
        """Return the answer of an item that is a session: whether the goal was reached, and in how many actions."""
        return f"{WON if self.now.won else 'not won'} after {len(self.turns)} actions"


def is_won(answer: str) -> bool:
    """Return whether an `Episode.outcome` says that the goal was reached."""
    return answer.startswith(WON)


class World(Protocol):
    """A world, as `open_world` of a benchmark's worlds.py makes it in a process of its own inside the sandbox."""

    def opening(self) -> Observation:
        """Return what is seen before the first action."""

    def act(self, action: str) -> Observation:
        """Carry out an action; one that the world does not know has an observation as well."""
