"""The stand-in in households: it searches, takes, treats and brings by rules that the skill's directives change."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from local.standin.conversation import Call, Reply
from local.standin.directive import Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Subject, Tool
from local.standin.symptom_case import SymptomCase

_ASKS = "Carry out a task in a household, by one text command at a time."
_BY_TOOL = "Carry out the task in this household with the tool act"
_GOAL = re.compile(
    r"Your task is to: (?:(?P<lamp>look at|examine)(?: the)? (?P<seen>\w+) (?:under|with) the \w+"
    r"|(?:(?P<verb>clean|heat|cool) some|put (?:an?|some)(?: (?P<state>clean|hot|cool))?"
    r"|(?P<two>(?:put|find) two)) (?P<thing>\w+) (?:and put (?:it|them) )?(?:in|on) (?P<place>\w+))"
)
_APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_STATES = {"clean": "clean", "hot": "heat", "cool": "cool"}
_BEFORE = re.compile(r"^> (?P<command>.*)\n(?P<text>.+)$", re.MULTILINE)
_NOW = re.compile(r"What you see now: (?P<text>.+)")
_COUNT = re.compile(r"^Commands given so far: (?P<count>\d+)$", re.MULTILINE)
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
_MANY = 3
"""Times that something has to happen before it is a habit."""

ON_HOUSEHOLDS = (
    directive(
        "open_closed",
        [r"\bopen\w*\b.{0,40}\b(?:closed|shut)\b"],
        [
            "Open what is closed before you look for something in it.",
            "Open closed drawers, cabinets and the like, and look inside.",
        ],
        "Closed places were passed by without a look inside.",
    ),
    directive(
        "one_by_one",
        [r"\b(?:no place twice|(?:each|every) place (?:only )?once)\b"],
        ["Go through the places in turn, and to no place twice.", "Search each place once, one after the other."],
        "Places were searched that had been searched before.",
    ),
    directive(
        "surfaces_first",
        [r"\b(?:search|look|go|begin|start)\w*\b.{0,50}\b(?:tables|surfaces|countertops|shelves)\b.{0,20}\bfirst\b"],
        [
            "Search tables, shelves and other open surfaces first.",
            "Look on tables and countertops first, where most things lie.",
        ],
        "The turns were used up in places where little lies.",
    ),
    directive(
        "no_effect",
        [r"\b(?:nothing happens|no effect|without effect)\b"],
        [
            "When nothing happens, do something else: open the place, or go closer.",
            "Do not repeat a command that had no effect.",
        ],
        "A command without effect was repeated until the turns were over.",
    ),
    directive(
        "inventory",
        [r"\b(?:check|list|look at)\w*\b.{0,30}\b(?:inventory|carrying)\b"],
        ["Check your inventory after every command.", "Look at what you are carrying after each step."],
        "It was not clear what was carried.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Situation:
    """A household as one prompt tells it."""

    goal: re.Match[str]
    recent: Sequence[str]
    """What was seen last, the present behind what was before; where it is known, after the command that led to it."""
    commands: Sequence[str]
    count: int
    """Commands given so far."""

    @classmethod
    def of_prompt(cls, prompt: str) -> "Situation | None":
        """Read a prompt of the chat harness."""
        goal, now, count = _GOAL.search(prompt), _NOW.search(prompt), _COUNT.search(prompt)
        if goal is None:
            return None
        # What was tried in vain tells as much as what one has done.
        turns = [f"{found['command']}: {found['text']}" for found in _BEFORE.finditer(prompt)]
        recent = turns or ([now["text"]] if now else [])
        return cls(goal, recent, _commands(prompt), int(count["count"]) if count else 0)

    @property
    def thing(self) -> str:
        """Return the kind of thing that is wanted."""
        return self.goal["thing"] or self.goal["seen"]

    @property
    def treatment(self) -> str:
        """Return what is to be done to it: clean, heat, cool, or nothing."""
        return self.goal["verb"] or _STATES.get(self.goal["state"] or "", "")

    @property
    def here(self) -> str:
        """Return the place where one is; empty at the beginning."""
        found = [match["place"] for text in self.recent for match in _HERE.finditer(text)]
        return found[-1] if found else ""

    @property
    def carried(self) -> str:
        """Return the thing that one carries, as far as the prompt tells."""
        for command in self.commands:
            match = re.match(rf"(?:put|heat|clean|cool) ({self.thing} \d+) ", command)
            if match:
                return match[1]
        handled = [re.search(rf"(You [a-z ]+ the|put) ({self.thing} \d+)(?! .*You put)", text) for text in self.recent]
        last = next((match for match in reversed(handled) if match), None)
        return last[2] if last and last[1] != "You put the" else ""

    @property
    def treated(self) -> bool:
        """Return whether the thing is as it is wanted, as far as the prompt tells."""
        return not self.treatment or any(re.search(r"You (?:heat|clean|cool) the", text) for text in self.recent)

    def places(self, active: Active) -> Sequence[str]:
        """Return all places in the order of a search."""
        found = {command.removeprefix("go to ") for command in self.commands if command.startswith("go to ")}
        found |= {self.here} - {""}
        surfaces = _SURFACES if "surfaces_first" in active else ()
        return sorted(
            found, key=lambda place: (not place.startswith(surfaces), place.split()[0], int(place.split()[-1]))
        )


def next_command(now: Situation, active: Active) -> str:
    """Return what the stand-in does next."""
    if "inventory" in active and now.count % 2 == 1:
        return "inventory"
    return (_finish(now, active) if now.carried else _take(now)) or _open(now, active) or _search(now, active)


def _finish(now: Situation, active: Active) -> str:
    """Return what brings the carried thing further; empty if the lamp has to be found."""
    if now.goal["lamp"]:
        return next((command for command in now.commands if command.startswith("use ")), "")
    just_taken = "You pick up the" in now.recent[-1] if now.recent else False
    if now.treatment and not now.treated and not (now.here.startswith(now.goal["place"]) and not just_taken):
        treat = next((one for one in now.commands if one.startswith(f"{now.treatment} {now.carried}")), "")
        return treat or _go(now, _APPLIANCES[now.treatment])
    if not now.here.startswith(now.goal["place"]):
        return _go(now, now.goal["place"])
    put = next((command for command in now.commands if command.startswith(f"put {now.carried}")), "")
    nothing = bool(now.recent) and now.recent[-1].endswith("Nothing happens.")
    return put or (_opening(now) if nothing and "no_effect" in active else f"put {now.carried} in/on {now.here}")


def _take(now: Situation) -> str:
    """Return what takes a thing that is in sight, but not from where it belongs."""
    place = now.goal["place"] or "nowhere"
    takes = [command for command in now.commands if re.match(rf"take {now.thing} \d+ from ", command)]
    return next((command for command in takes if now.goal["two"] is None or f" from {place} " not in command), "")


def _open(now: Situation, active: Active) -> str:
    return _opening(now) if "open_closed" in active else ""


def _opening(now: Situation) -> str:
    return next((command for command in now.commands if command == f"open {now.here}"), "")


def _go(now: Situation, kind: str) -> str:
    return next((command for command in now.commands if command.startswith(f"go to {kind} ")), "look")


def _search(now: Situation, active: Active) -> str:
    places = now.places(active)
    if not places:
        return "look"
    if "one_by_one" in active:
        following = places.index(now.here) + 1 if now.here in places else 0
    else:
        following = crc32(f"{now.goal[0]} {now.count}".encode())
    return f"go to {places[following % len(places)]}"


def _commands(text: str) -> Sequence[str]:
    return [found["command"] for found in _COMMAND.finditer(text)]


def use_tool(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Act once more, until the task is done."""
    goal = _GOAL.search(task)
    last = results[-1] if results else task
    if goal is None or "The task is done" in last or "The session is over" in last:
        return Reply("It is done." if goal else "I do not know such a task.")
    now = Situation(goal, [result.partition("\n")[0] for result in results[-3:]], _commands(last), len(results))
    return Reply(calls=(Call("act", json.dumps({"action": next_command(now, active)})),))


def symptoms(trajectory: SeenTrajectory) -> Mapping[str, bool]:
    """Return the directive that would have helped, and whether it has to be on; empty if the task was done."""
    if "not done" not in trajectory.feedback:
        return {}
    seen = [line for said in trajectory.messages if said.role != "assistant" for line in said.content.splitlines()]
    if sum(line.startswith(("You are carrying", "You are not carrying")) for line in seen) > _MANY:
        return {"inventory": False}
    if sum("Nothing happens." in line for line in seen) >= _MANY:
        return {"no_effect": True}
    if any(line.endswith(" is closed.") for line in seen) and not any("You open the" in line for line in seen):
        return {"open_closed": True}
    visits = Counter(match["place"] for line in seen if "You arrive at" in line for match in _HERE.finditer(line))
    if max(visits.values(), default=0) >= _MANY:
        return {"one_by_one": True}
    return {"surfaces_first": True}


class Households(Subject):
    """Prompts that ask for the next command in a household."""

    directives: Sequence[Directive] = ON_HOUSEHOLDS
    empty_advice: Sequence[tuple[str, str]] = (
        ("Read the task to its end before you begin.", "A hasty start may go for the wrong thing."),
        ("Stay with what worked: find, take, bring.", "The rollouts that went well did so."),
    )
    tools: Mapping[str, Tool] = {"act": use_tool}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks to act in a household."""
        return prompt.startswith((_ASKS, _BY_TOOL))

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return the next command in tags."""
        now = Situation.of_prompt(prompt)
        command = "look" if now is None else next_command(now, active)
        return f"<think>By the rules: {', '.join(sorted(active)) or 'none'}.</think><action>{command}</action>"

    def case(self, trajectory: SeenTrajectory) -> SymptomCase:
        """Return the symptoms of the trajectory."""
        return SymptomCase(trajectory.item_id, symptoms(trajectory))


STANDIN = Households()
