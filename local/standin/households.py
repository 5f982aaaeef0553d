"""The stand-in in households: it searches place by place, takes, treats and brings what the task names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

IDLE = "look"
"""A command that changes nothing."""
_GOAL = re.compile(
    r"Your task is to: (?:(?P<lamp>look at|examine)(?: the)? (?P<seen>\w+) (?:under|with) the \w+"
    r"|(?:(?P<verb>clean|heat|cool) some|put (?:an?|some)(?: (?P<state>clean|hot|cool))?"
    r"|(?P<two>(?:put|find) two)) (?P<thing>\w+) (?:and put (?:it|them) )?(?:in|on) (?P<place>\w+))"
)
_APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_STATES = {"clean": "clean", "hot": "heat", "cool": "cool"}
_BEFORE = re.compile(r"^> (?P<command>.*)\n(?P<text>.+)$", re.MULTILINE)
_NOW = re.compile(r"What you see now: (?P<text>.+)")
_COMMAND = re.compile(r"^- (?P<command>.+)$", re.MULTILINE)
_HERE = re.compile(r"(?:On the|The) (?P<place>[a-z]+ \d+)(?:, you see| is (?:open|closed))")
_SURFACES = (
    "countertop",
    "diningtable",
    "desk",
    "sidetable",
    "coffeetable",
    "dresser",
    "shelf",
    "bed",
    "sofa",
    "armchair",
)
ENDED = ("The task is done", "The session is over")


@dataclass(frozen=True)
class Situation:
    """A household as a prompt or the results of a tool tell it."""

    goal: re.Match[str]
    recent: Sequence[str]
    """What was seen last, the present behind what was before."""
    commands: Sequence[str]
    """The commands that would do something."""

    @classmethod
    def of(cls, task: str, seen: Sequence[str]) -> "Situation | None":
        """Read a task, and what the turns behind it showed; None if it is of no kind that ALFWorld has."""
        goal, last = _GOAL.search(task), seen[-1] if seen else task
        if goal is None:
            return None
        turns = [f"{found['command']}: {found['text']}" for found in _BEFORE.finditer(last)]
        now = _NOW.search(last)
        recent = turns or ([now["text"]] if now else [text.partition("\n")[0] for text in seen[-3:]])
        return cls(goal, recent, _COMMAND.findall(last))

    @property
    def here(self) -> str:
        """Return the place where one is; empty at the beginning."""
        found = [match["place"] for text in self.recent for match in _HERE.finditer(text)]
        return found[-1] if found else ""

    @property
    def carried(self) -> str:
        """Return the thing that one carries, as far as it is told."""
        thing = self.goal["thing"] or self.goal["seen"]
        for command in self.commands:
            match = re.match(rf"(?:put|heat|clean|cool) ({thing} \d+) ", command)
            if match:
                return match[1]
        handled = [re.search(rf"(You [a-z ]+ the|put) ({thing} \d+)(?! .*You put)", text) for text in self.recent]
        last = next((match for match in reversed(handled) if match), None)
        return last[2] if last and last[1] != "You put the" else ""

    def next_command(self) -> str:
        opening = self._first(f"open {self.here}")
        return (self._finish() if self.carried else self._take()) or opening or self._search()

    def _finish(self) -> str:
        """Return what brings the carried thing further; empty if the lamp has to be found."""
        goal = self.goal
        if goal["lamp"]:
            return self._first("use ")
        treatment = goal["verb"] or _STATES.get(goal["state"] or "", "")
        treated = any(re.search(r"You (?:heat|clean|cool) the", text) for text in self.recent)
        arrived = self.here.startswith(goal["place"]) and "You pick up the" not in self.recent[-1]
        if treatment and not treated and not arrived:
            return self._first(f"{treatment} {self.carried}") or self._first(f"go to {_APPLIANCES[treatment]} ") or IDLE
        if not self.here.startswith(goal["place"]):
            return self._first(f"go to {goal['place']} ") or IDLE
        return self._first(f"put {self.carried}") or self._first(f"open {self.here}") or IDLE

    def _take(self) -> str:
        """Return what takes a thing that is in sight, but not from where it belongs."""
        thing, place = self.goal["thing"] or self.goal["seen"], self.goal["place"]
        takes = [command for command in self.commands if re.match(rf"take {thing} \d+ from ", command)]
        return next((one for one in takes if not (self.goal["two"] and f" from {place} " in one)), "")

    def _search(self) -> str:
        """Return the way to the next place, open surfaces first."""
        found = {one.removeprefix("go to ") for one in self.commands if one.startswith("go to ")} | {self.here} - {""}
        places = sorted(found, key=lambda one: (not one.startswith(_SURFACES), one.split()[0], int(one.split()[-1])))
        following = places.index(self.here) + 1 if self.here in places else 0
        return f"go to {places[following % len(places)]}" if places else IDLE

    def _first(self, start: str) -> str:
        return next((command for command in self.commands if command.startswith(start)), "")
