"""ALFWorld: households in text, in which the target carries out a task command by command."""

import json
import re
from collections.abc import Mapping, Sequence

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, ItemFile, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Episode, Observation, is_won
from skillopt_airflow.tasks.record_fields import identity_at, text_at

GAME = "game.tw-pddl"
PARTS = ("pddl_domain", "grammar", "pddl_problem")
"""What the engine needs of a game's file. The rest may be a walkthrough."""
WITHOUT_ACTION = "look"
"""Command that a reply without one stands for: it changes nothing, and costs a turn."""
_TASK = re.compile(r"Your task is to:\s*(?P<task>.+)")
_HOW = """Think about it between <reason> and </reason>. Then give the one command that comes next between <action> and
</action>, such as <action>go to desk 1</action>."""
_BY_TOOL = """Carry out the task in this household with the tool act, one command a call, such as: go to desk 1.
You are told when it is done; say so then in a few words.

{seen}"""
_FIRST = """Carry out a task in a household, by one text command at a time.

{seen}

{how}"""
_LATER = """Carry out a task in a household, by one text command at a time.

Your task is to: {task}
Commands given so far: {count}
{before}
What you see now: {seen}

{how}"""
_BEFORE = """The last {count} of them, and what each brought:
{turns}
"""


class ALFWorld:
    """Games as `alfworld-generate` writes them; a record names the file of one."""

    runs_code = False
    text_columns: tuple[str, ...] = ("gamefile", "task_type")
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        """Return the record's id, such as train:0000."""
        return identity_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return a game as an item; nothing of it is public, since its path tells the task.

        Raises:
            DataError: a key is missing.
        """
        game = ItemFile(name=GAME, path=text_at(record, "gamefile"))
        return Item(id=self.identity(record), public={}, reference={}, files=(game,))

    def world_files(self, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the game without what the engine does not need, such as a walkthrough.

        Raises:
            DataError: the file is no game.
        """
        try:
            game = json.loads(contents[GAME])
            return {GAME: json.dumps({part: game[part] for part in PARTS}).encode()}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{GAME}: expected a JSON object with {', '.join(PARTS)}: {error!r}") from error

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the skill, and a first prompt without its household, whose size nobody knows before it is opened."""
        prompt = _FIRST.format(seen="", how=_HOW)
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def task(self, opening: Observation) -> str:
        """Return the household and how to act in it."""
        return _BY_TOOL.format(seen=self.shown(opening))

    def prompt(self, episode: Episode, last_turns: int) -> str:
        """Return the prompt for the next command; the household is described in the first one alone."""
        seen = self.shown(episode.now)
        if not episode.turns:
            return _FIRST.format(seen=seen, how=_HOW)
        recent = episode.turns[-last_turns:] if last_turns else ()
        turns = "\n".join(f"> {turn.action}\n{turn.observation.text}" for turn in recent)
        task = _TASK.search(episode.opening.text)
        return _LATER.format(
            task="" if task is None else task["task"],
            count=len(episode.turns),
            before=_BEFORE.format(count=len(recent), turns=turns) if recent else "",
            seen=seen,
            how=_HOW,
        )

    def shown(self, observation: Observation) -> str:
        """Return what is seen and, one a line, the commands that would do something."""
        if observation.won:
            return f"{observation.text}\n\nThe task is done."
        if not observation.admissible:
            return observation.text
        commands = "\n".join(f"- {command}" for command in observation.admissible)
        return f"{observation.text}\n\nCommands that would do something:\n{commands}"

    def action(self, response: str) -> str:
        """Return the first command in tags, in lower case; a reply without one looks around."""
        inside, closed, _ = response.lower().partition("<action>")[2].partition("</action>")
        return (inside.strip() if closed else "") or WITHOUT_ACTION

    def answer(self, response: str) -> str:
        """Return the command of a reply; the answer of an item is its outcome, see `score`."""
        return self.action(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 if the task was done, else 0; there is no part of it."""
        won = is_won(trajectory.answer)
        feedback = f"{'The task is done' if won else 'The task is not done'}: {trajectory.answer}."
        return Score(hard=float(won), soft=float(won), feedback=feedback)


BENCHMARK = ALFWorld()
