"""Protocols of benchmarks, of their optional abilities, and of the sandbox that they run in."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory, Value
from skillopt_airflow.tasks.corpus import FoundDocument
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.tasks.repository_tests import RepositoryTestRun, RepositoryTests

WON = "won"
SEALED = "sealed"
"""Folder of the files of worlds, which the rollout program reads and removes."""


class Observation(Value):
    """A view of a world at the beginning or after an action."""

    text: str
    admissible: tuple[str, ...] = ()
    """Actions that would change something now, if the world can list them."""
    won: bool = False
    """True if the goal is reached; the world then takes no more actions."""


class SessionTurn(NamedTuple):
    """An action of the target and its result."""

    action: str
    observation: Observation


class Episode(NamedTuple):
    """A session so far."""

    opening: Observation
    turns: tuple[SessionTurn, ...] = ()

    @property
    def now(self) -> Observation:
        return self.turns[-1].observation if self.turns else self.opening

    def after(self, action: str, observation: Observation) -> "Episode":
        return self._replace(turns=(*self.turns, SessionTurn(action, observation)))

    @property
    def outcome(self) -> str:
        """The answer of a session item: whether the goal is reached, and after how many actions."""
        return f"{WON if self.now.won else 'not won'} after {len(self.turns)} actions"


def is_won(answer: str) -> bool:
    return answer.startswith(WON)


class World(Protocol):
    """A world, which `open_world` in a benchmark's worlds.py creates in a separate process inside the sandbox."""

    def opening(self) -> Observation: ...

    def act(self, action: str) -> Observation:
        """Carry out an action; an unknown action also returns an observation."""


class Benchmark(Protocol):
    """A benchmark, which `benchmarks/<name>/adapter.py` defines as `BENCHMARK`.

    The sandbox image includes the module, so it may import only skillopt_airflow.core and the standard library.
    """

    runs_code: bool
    """True if rollouts execute code that the model writes; each item then gets its own container."""
    text_columns: tuple[str, ...]
    """Columns of a record that must hold a non-blank string."""
    list_columns: tuple[str, ...]
    """Columns of a record that must hold a non-empty list of non-blank strings."""

    def identity(self, record: JsonObject) -> str:
        """Return the key of a record and its item, unique over all splits; raise DataError if it has no usable one."""

    def item(self, record: JsonObject) -> Item:
        """Turn a record into an item with its identity; raise DataError if it is unusable (without file and row)."""

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the conversation that opens a rollout under the skill."""

    def answer(self, response: str) -> str:
        """Extract the target's final answer from its last response."""

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Score an `ok` trajectory on the host, without side effects; the reference never enters a container."""


class Corpus(Protocol):
    """The documents that all items of a run share, inside the sandbox."""

    @property
    def folder(self) -> str:
        """The read-only folder of the documents; empty if the run has no corpus."""

    def names(self) -> Sequence[str]:
        """Return the sorted names of the documents, which are paths below the folder."""

    def page(self, document: str, number: int) -> str:
        """Return the text of a page; raise LookupError with the valid pages if this one doesn't exist."""

    def tools(self) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return tools that list, search and read the documents; their errors tell the model what to do instead."""


class Workspace(Protocol):
    """An item's folders inside a sandbox, and the ways to run the target's code there."""

    inputs: str
    """The read-only folder of the item's files."""
    outputs: str
    """Working folder of the code; the scorer gets the files that are in it at the end."""
    sealed: Mapping[str, bytes]
    """Files of a session item, which only the session's process can read."""

    @property
    def corpus(self) -> Corpus:
        """The documents of the run; empty if `data.corpus` is unset."""

    def input_names(self) -> Sequence[str]:
        """Return the sorted names of the item's files."""

    def read_input(self, name: str) -> bytes:
        """Return the content of one of the item's files; for others raise FileNotFoundError, which lists the names."""

    async def search(self, query: str, documents: Sequence[FoundDocument]) -> Sequence[FoundDocument]:
        """Return the hits of the run's search engine; without one, the best of the item's own documents."""

    async def open_page(self, address: str, documents: Sequence[FoundDocument]) -> str:
        """Return the text of a hit, or without a search engine of a document, by its URL; else raise DataError."""

    async def run_python(self, code: str) -> str:
        """Run a program in a separate process, within the limits; return its output and how it ended."""

    @property
    def repository(self) -> str:
        """Folder of the repository that the target changes; empty if the item has no repository."""

    def agent_variables(self) -> Mapping[str, str]:
        """Return the environment variables with which an agent's own commands find the repository's packages."""

    async def run_shell(self, command: str) -> str:
        """Run a shell command in the repository, within the limits; return its output and how it ended."""


@runtime_checkable
class FollowsUp(Protocol):
    """A benchmark that reacts to each reply in the chat harness, for example by running its code."""

    async def follow_up(self, public: JsonObject, response: str, workspace: Workspace) -> str | None:
        """Return the next message to the target; None ends the conversation."""


@runtime_checkable
class ShowsFiles(Protocol):
    """A benchmark that shows the item's files to a target in the chat harness, which can't open them."""

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        """Return the text that is appended to the last opening message; may be empty."""


@runtime_checkable
class OffersTools(Protocol):
    """A benchmark with tools for the harness `tools`."""

    def task(self, public: JsonObject) -> str:
        """Return the task for an agent, without the skill, which becomes the agent's instructions."""

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        """Return functions whose docstrings and annotations describe them to the model."""


@runtime_checkable
class Searches(Protocol):
    """A benchmark whose tools may search the web; containers of other benchmarks can't."""

    searches: bool
    """True if a tool calls `Workspace.search`."""


@runtime_checkable
class PlaysSession(Protocol):
    """A benchmark whose items are worlds with a state, for the harnesses chat and tools.

    `open_world` in `benchmarks/<name>/worlds.py` creates a `World` from an item's files by name. The sandbox image
    includes that module, so it may import only packages of the image.
    """

    def world_files(self, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the files of the world, without any that reveal its solution."""

    def task(self, opening: Observation) -> str:
        """Return the task and the first observation, for an agent that acts through a tool."""

    def prompt(self, episode: Episode, last_turns: int) -> str:
        """Return the prompt for the next action, which shows the last `last_turns` turns."""

    def shown(self, observation: Observation) -> str:
        """Return the message that shows the result of an action in a conversation."""

    def action(self, response: str) -> str: ...


@runtime_checkable
class JudgesFiles(Protocol):
    """A benchmark that scores files. They are untrusted, so a process with limits reads them."""

    def score_files(self, item: Item, trajectory: Trajectory, produced: str, references: str) -> Score:
        """Score an `ok` trajectory by the folders of the target's files and of the item's reference files."""


@runtime_checkable
class JudgesRepository(Protocol):
    """A benchmark whose target changes a repository; a second, fresh container then runs its tests.

    Items have an image with a tree. The target's output is the file `patch.diff`, its difference from that tree.
    """

    def tests(self, item: Item, patch: str) -> RepositoryTests | Score:
        """Return the tests of a patch, or its score if there is nothing to test, as with an empty patch."""

    def score_tests(self, item: Item, patch: str, ran: RepositoryTestRun) -> Score: ...


@runtime_checkable
class AsksJudge(Protocol):
    """A benchmark with a judge model for answers on which the rules of `score` can't decide."""

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        """Return whether the result of `score` is final for this answer."""

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest: ...
