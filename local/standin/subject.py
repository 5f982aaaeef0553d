"""The stand-in's knowledge of a benchmark that does not ask about documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from local.standin.conversation import Call, Reply
from local.standin.directive import Directive
from local.standin.stage_request import SeenTrajectory

Active = frozenset[str]


@dataclass(frozen=True)
class Verdict:
    """Outcome of an item under a set of directives."""

    right: bool
    reciprocal_rank: float


class Case(Protocol):
    """An item that can be tried again under other directives."""

    @property
    def item_id(self) -> str:
        """Return the id of the item."""

    def verdict(self, active: Active) -> Verdict:
        """Return what the stand-in would have made of the item under these directives."""


class Tool(Protocol):
    """The target's use of a tool of the benchmark."""

    def __call__(self, active: Active, task: str, results: Sequence[str]) -> Reply:
        """Return the next turn after these results of earlier calls."""


class Subject(Protocol):
    """The wording of one benchmark: `benchmarks/<name>/standin.py` holds one as `STANDIN`."""

    directives: Sequence[Directive]
    empty_advice: Sequence[tuple[str, str]]
    """Rules that change nothing, each with a rationale."""
    tools: Mapping[str, Tool]

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt is an item of this benchmark."""

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return the target's answer to such a prompt; the pictures are in the order of their marks in it."""

    def shown_by(self, trajectory: SeenTrajectory) -> bool:
        """Return whether the optimizer sees a trajectory of this benchmark."""
        return self.speaks_of(trajectory.prompt)

    def case(self, trajectory: SeenTrajectory) -> Case | None:
        """Return such a trajectory as a case; None if it cannot be tried again."""


@runtime_checkable
class ActsInShell(Subject, Protocol):
    """A subject whose tools an agent CLI does without, since it has a shell."""

    def command(self, call: Call, task: str) -> str:
        """Return the shell's command that does what a call of one of the tools would do."""
