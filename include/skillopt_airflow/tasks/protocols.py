"""Protocols of what a benchmark is and can do, and of what it finds in a sandbox."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory, Value
from skillopt_airflow.tasks.corpus import FoundDocument
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.tasks.repository_tests import RepositoryTests, TestedRepository

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
        return self.turns[-1].observation if self.turns else self.opening

    def after(self, action: str, observation: Observation) -> "Episode":
        return self._replace(turns=(*self.turns, SessionTurn(action, observation)))

    @property
    def outcome(self) -> str:
        """Return the answer of an item that is a session: whether the goal was reached, and in how many actions."""
        return f"{WON if self.now.won else 'not won'} after {len(self.turns)} actions"


def is_won(answer: str) -> bool:
    return answer.startswith(WON)


class World(Protocol):
    """A world, as `open_world` of a benchmark's worlds.py makes it in a process of its own inside the sandbox."""

    def opening(self) -> Observation:
        """Return what is seen before the first action."""

    def act(self, action: str) -> Observation:
        """Carry out an action; one that the world does not know has an observation as well."""


class Benchmark(Protocol):
    """The interface of a folder in benchmarks/: `benchmarks/<name>/adapter.py` holds one as `BENCHMARK`.

    The module enters the sandbox image, so it imports skillopt_airflow.core and the standard library only.
    """

    runs_code: bool
    """True if its rollouts execute code that the model writes; each item then gets a container of its own."""
    text_columns: tuple[str, ...]
    """Columns of a record that must hold a text that is not blank."""
    list_columns: tuple[str, ...]
    """Columns of a record that must hold a list of at least one text that is not blank."""

    def identity(self, record: JsonObject) -> str:
        """Return the key that distinguishes a record, and its item, among those of all splits.

        Raises:
            DataError: with what the record lacks for it.
        """

    def item(self, record: JsonObject) -> Item:
        """Turn one record of a data file into an item, whose id is the record's identity.

        Raises:
            DataError: with what is wrong with the record; the caller adds file and row.
        """

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the conversation that opens a rollout under the skill."""

    def answer(self, response: str) -> str:
        """Extract the target's final answer from its last response."""

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Judge an `ok` trajectory; pure, and host-side, because it sees the reference."""


class Corpus(Protocol):
    """The documents that all items of a run share, as a benchmark in a sandbox sees them."""

    @property
    def folder(self) -> str:
        """Their folder, read-only; empty if the run has no corpus."""

    def names(self) -> Sequence[str]:
        """Return the names of the documents, in alphabetical order: paths below the folder."""

    def page(self, document: str, number: int) -> str:
        """Return the text of a page.

        Raises:
            LookupError: there is no such document or page; the text says what there is.
        """

    def tools(self) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return tools for a model: they list, search and read the documents, and refuse with what to do instead."""


class Workspace(Protocol):
    """One item's folders, in which code that the target wrote may run inside a sandbox."""

    inputs: str
    """Folder of the item's files; read-only."""
    outputs: str
    """Working folder of the code; what lies in it at the end goes to the scorer."""
    sealed: Mapping[str, bytes]
    """Files of an item that is a session: no other process finds them, and only the session's is given them."""

    @property
    def corpus(self) -> Corpus:
        """The documents of the run; there are none if `data.corpus` is unset."""

    def input_names(self) -> Sequence[str]:
        """Return the names of the item's files, in alphabetical order."""

    def read_input(self, name: str) -> bytes:
        """Return the content of one of the item's files.

        Raises:
            FileNotFoundError: none of them has the name; the text lists those that there are.
        """

    async def search(self, query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
        """Return what the run's search engine finds; where the run has none, the best of the item's own documents."""

    async def open_page(self, address: str, documents: Sequence[FoundDocument]) -> str:
        """Return the text of what a search found at this address; where the run has none, of the item's document.

        Raises:
            DataError: there is none.
        """

    async def run_python(self, code: str) -> str:
        """Run a program in a process of its own, within the limits; return its output and how it ended."""

    @property
    def repository(self) -> str:
        """Folder of the repository that the target changes; empty if the item has none."""

    def agent_variables(self) -> Mapping[str, str]:
        """Return the variables by which an agent's own commands find the repository's packages; none without one."""

    async def run_shell(self, command: str) -> str:
        """Run a shell command in the repository, within the limits; return its output and how it ended."""


@runtime_checkable
class FollowsUp(Protocol):
    """A benchmark that does something with each reply of the chat harness, such as running the code in it."""

    async def follow_up(self, public: JsonObject, response: str, workspace: Workspace) -> str | None:
        """Return the next message to the target; None ends the conversation."""


@runtime_checkable
class ShowsFiles(Protocol):
    """A benchmark that shows the target of the chat harness something of the item's files, which it cannot open."""

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        """Return what ends the last of the messages that open the conversation; empty if there is nothing to show."""


@runtime_checkable
class OffersTools(Protocol):
    """A benchmark that has tools for the harness `tools`."""

    def task(self, public: JsonObject) -> str:
        """Return the task for an agent; the skill is given separately, as its instructions."""

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return functions with docstrings and annotations, from which the model learns them."""


@runtime_checkable
class Searches(Protocol):
    """A benchmark whose tools may search the web; a container of any other has no way to."""

    searches: bool
    """True if a tool asks `Workspace.search`."""


@runtime_checkable
class PlaysSession(Protocol):
    """A benchmark whose items are worlds with a state, for the harnesses chat and tools.

    `open_world` in `benchmarks/<name>/worlds.py` makes a `World` of an item's files by name. That module enters the
    sandbox image as well, and may import what the image has.
    """

    def world_files(self, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what the world is made of, without anything in the item's files that tells its solution."""

    def task(self, opening: Observation) -> str:
        """Return the task, and what is seen at first, for an agent that acts through a tool."""

    def prompt(self, episode: Episode, last_turns: int) -> str:
        """Return the prompt for the next action; of the turns before it shows as many as are asked for."""

    def shown(self, observation: Observation) -> str:
        """Return what an action brought, as a conversation goes on with it."""

    def action(self, response: str) -> str:
        """Return the action that a reply asks for."""


@runtime_checkable
class JudgesFiles(Protocol):
    """A benchmark that judges files; they are not to be trusted, so it happens in a process with limits."""

    def score_files(self, item: Item, trajectory: Trajectory, produced: str, references: str) -> Score:
        """Judge an `ok` trajectory by the folders of what the target left and of the item's reference files."""


@runtime_checkable
class JudgesRepository(Protocol):
    """A benchmark whose target changes a repository, which tests judge in a second, fresh container.

    Items have an image with a tree. What the target leaves is the difference from that tree, as the file `patch.diff`.
    """

    def tests(self, item: Item, patch: str) -> RepositoryTests | Score:
        """Return how a patch is to be tested; its score where nothing is to be tested, such as of an empty one."""

    def score_tests(self, item: Item, patch: str, ran: TestedRepository) -> Score:
        """Judge by the output of the tests."""


@runtime_checkable
class AsksJudge(Protocol):
    """A benchmark whose answers a judge grades where the rules of `score` cannot decide."""

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        """Return whether `score` is the last word on this answer."""

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest:
        """Return what the judge is asked about an answer."""
