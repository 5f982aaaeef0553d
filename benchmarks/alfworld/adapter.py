"""ALFWorld: tasks in text-based households, one command per turn."""

import json
import re
from collections.abc import Mapping, Sequence

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, ItemFile, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Episode, Observation, is_won
from skillopt_airflow.tasks.record_fields import identity_at, text_at

GAME = "game.tw-pddl"
PARTS = ("pddl_domain", "grammar", "pddl_problem")
"""Keys of a game's file for the engine; others can contain a walkthrough."""
WITHOUT_ACTION = "look"
"""The command for a reply without one; it changes nothing and uses a turn."""
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
    """Records with the path of a game from `alfworld-generate`."""

    runs_code = False
    text_columns: tuple[str, ...] = ("gamefile", "task_type")
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        return identity_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return an item without public data, because the game's path reveals the task.

        Raises:
            DataError: a key is missing.
        """
        game = ItemFile(name=GAME, path=text_at(record, "gamefile"))
        return Item(id=self.identity(record), public={}, reference={}, files=(game,))

    def world_files(self, contents: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the game reduced to PARTS.

        Raises:
            DataError: the file isn't a game.
        """
        try:
            game = json.loads(contents[GAME])
            return {GAME: json.dumps({part: game[part] for part in PARTS}).encode()}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{GAME}: expected a JSON object with {', '.join(PARTS)}: {error!r}") from error

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the first prompt without the household, which is unknown until the game starts."""
        prompt = _FIRST.format(seen="", how=_HOW)
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def task(self, opening: Observation) -> str:
        return _BY_TOOL.format(seen=self.shown(opening))

    def prompt(self, episode: Episode, last_turns: int) -> str:
        """Return the prompt for the next command; only the first one describes the household."""
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
        """Return the observation and the admissible commands, one per line."""
        if observation.won:
            return f"{observation.text}\n\nThe task is done."
        if not observation.admissible:
            return observation.text
        commands = "\n".join(f"- {command}" for command in observation.admissible)
        return f"{observation.text}\n\nCommands that would do something:\n{commands}"

    def action(self, response: str) -> str:
        """Return the first command in tags, in lowercase, else WITHOUT_ACTION."""
        inside, closed, _ = response.lower().partition("<action>")[2].partition("</action>")
        return (inside.strip() if closed else "") or WITHOUT_ACTION

    def answer(self, response: str) -> str:
        return self.action(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 if the task is done, else 0, as hard and soft."""
        won = is_won(trajectory.answer)
        feedback = f"{'The task is done' if won else 'The task is not done'}: {trajectory.answer}."
        return Score(hard=float(won), soft=float(won), feedback=feedback)


BENCHMARK = ALFWorld()
