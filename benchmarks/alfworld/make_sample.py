"""Write the sample: small households of the project's own, in the format of ALFWorld's games.

    python benchmarks/alfworld/make_sample.py

Each game has some places, of which some are closed, a few things in them, and a task of one of ALFWorld's six types.
They are made by chance from a fixed seed, so that the same files are written each time.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SAMPLE = Path(__file__).with_name("sample")
SPLITS = {"train": 18, "val": 12, "test": 12}
TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
THINGS = ("apple", "book", "bowl", "candle", "cloth", "cup", "egg", "fork", "mug", "pen", "plate", "tomato")
SURFACES = ("countertop", "desk", "shelf", "sidetable", "diningtable", "bed")
CLOSED = ("cabinet", "drawer", "drawer", "cabinet", "drawer", "cabinet", "drawer")
APPLIANCES = {"fridge": "cools", "microwave": "heats", "sinkbasin": "washes"}

DOMAIN = """
(define (domain household)
 (:requirements :adl :action-costs :typing)
 (:types agent receptacle object sort kind)
 (:predicates
    (at ?a - agent ?r - receptacle)
    (reachable ?r - receptacle)
    (closable ?r - receptacle)
    (opened ?r - receptacle)
    (sorted ?r - receptacle ?s - sort)
    (washes ?r - receptacle)
    (heats ?r - receptacle)
    (cools ?r - receptacle)
    (in ?o - object ?r - receptacle)
    (made ?o - object ?k - kind)
    (portable ?o - object)
    (switchable ?o - object)
    (lit ?o - object)
    (washed ?o - object)
    (heated ?o - object)
    (cooled ?o - object)
    (holds ?a - agent ?o - object)
    (busy ?a - agent)
    (seen ?a - agent)
 )
 (:functions (total-cost) - number)
 (:action look
    :parameters (?a - agent ?r - receptacle)
    :precondition (at ?a ?r)
    :effect (seen ?a))
 (:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (seen ?a))
 (:action go
    :parameters (?a - agent ?s - receptacle ?r - receptacle)
    :precondition (and (at ?a ?s) (reachable ?r) (not (at ?a ?r)))
    :effect (and (not (at ?a ?s)) (at ?a ?r) (increase (total-cost) 1)))
 (:action open
    :parameters (?a - agent ?r - receptacle)
    :precondition (and (at ?a ?r) (closable ?r) (not (opened ?r)))
    :effect (and (opened ?r) (increase (total-cost) 1)))
 (:action close
    :parameters (?a - agent ?r - receptacle)
    :precondition (and (at ?a ?r) (closable ?r) (opened ?r))
    :effect (and (not (opened ?r)) (increase (total-cost) 1)))
 (:action take
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (in ?o ?r) (portable ?o) (not (busy ?a)) (or (not (closable ?r)) (opened ?r)))
    :effect (and (holds ?a ?o) (busy ?a) (not (in ?o ?r)) (increase (total-cost) 1)))
 (:action put
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (holds ?a ?o) (or (not (closable ?r)) (opened ?r)))
    :effect (and (not (holds ?a ?o)) (not (busy ?a)) (in ?o ?r) (increase (total-cost) 1)))
 (:action use
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (in ?o ?r) (switchable ?o))
    :effect (and (lit ?o) (increase (total-cost) 1)))
 (:action wash
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (holds ?a ?o) (washes ?r))
    :effect (and (washed ?o) (increase (total-cost) 1)))
 (:action heat
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (holds ?a ?o) (heats ?r))
    :effect (and (heated ?o) (not (cooled ?o)) (increase (total-cost) 1)))
 (:action cool
    :parameters (?a - agent ?o - object ?r - receptacle)
    :precondition (and (at ?a ?r) (holds ?a ?o) (cools ?r))
    :effect (and (cooled ?o) (not (heated ?o)) (increase (total-cost) 1)))
)
"""
INSIDE = "[{o.indefinite + ' ' + o.name | in(o:object, r:receptacle)}]"
RULES = {
    "list_empty": [{"rhs": "nothing"}],
    "list_separator": [{"rhs": ", "}],
    "list_last_separator": [{"rhs": ", and "}],
    "intro": [{"rhs": "-= Welcome to a household =-\n\n#start#\n\n#task#"}],
    "start": [
        {
            "rhs": "You are in the middle of a room. Looking quickly around you, you see "
            "[{p.indefinite + ' ' + p.name | reachable(p:receptacle)}]."
        }
    ],
    "arrived": [{"rhs": "You arrive at the {r.name}. #inside#"}],
    "inside": [
        {
            "condition": "closable(r:receptacle) & opened(r:receptacle)",
            "rhs": f"The {{r.name}} is open. In it, you see {INSIDE}.",
        },
        {"condition": "closable(r:receptacle)", "rhs": "The {r.name} is closed."},
        {"rhs": f"On the {{r.name}}, you see {INSIDE}."},
    ],
    "opened": [{"rhs": "You open the {r.name}. #inside#"}],
    "closed": [{"rhs": "You close the {r.name}."}],
    "taken": [{"rhs": "You pick up the {o.name} from the {r.name}."}],
    "put": [{"rhs": "You put the {o.name} in/on the {r.name}."}],
    "used": [{"rhs": "You turn on the {o.name}."}],
    "washed": [{"rhs": "You clean the {o.name} using the {r.name}."}],
    "heated": [{"rhs": "You heat the {o.name} using the {r.name}."}],
    "cooled": [{"rhs": "You cool the {o.name} using the {r.name}."}],
    "looked": [
        {"condition": "reachable(r:receptacle)", "rhs": "You are at the {r.name}. #inside#"},
        {"rhs": "#start#"},
    ],
    "inventory": [
        {
            "condition": "busy(a:agent)",
            "rhs": "You are carrying: [{o.indefinite + ' ' + o.name | holds(a:agent, o:object)}].",
        },
        {"rhs": "You are not carrying anything."},
    ],
}
COMMANDS = {
    "look": ("look", "looked"),
    "inventory": ("inventory", "inventory"),
    "go": ("go to {r}", "arrived"),
    "open": ("open {r}", "opened"),
    "close": ("close {r}", "closed"),
    "take": ("take {o} from {r}", "taken"),
    "put": ("put {o} in/on {r}", "put"),
    "use": ("use {o}", "used"),
    "wash": ("clean {o} with {r}", "washed"),
    "heat": ("heat {o} with {r}", "heated"),
    "cool": ("cool {o} with {r}", "cooled"),
}
"""By action, what is typed for it and the rule of what it brings."""


class Task(NamedTuple):
    """A goal in words and in PDDL, the kind of thing that it wants, and how many of it."""

    words: str
    goal: str
    kind: str
    wanted: int = 1


def main() -> None:
    """Write the splits and their games."""
    for split, count in SPLITS.items():
        records = []
        for index in range(count):
            chance = random.Random(f"{split} {index}")  # noqa: S311
            task_type = TYPES[index % len(TYPES)]
            path = Path("games", split, f"{index:04}", "game.tw-pddl")
            (SAMPLE / path).parent.mkdir(parents=True, exist_ok=True)
            (SAMPLE / path).write_text(json.dumps(game(task_type, chance), indent=1) + "\n", encoding="utf-8")
            records.append({"id": f"{split}:{index:04}", "gamefile": str(path), "task_type": task_type})
        (SAMPLE / split).mkdir(exist_ok=True)
        (SAMPLE / split / "items.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def game(task_type: str, chance: random.Random) -> dict[str, object]:
    """Return a game with a task of a type."""
    surfaces = chance.sample(SURFACES, 5)
    closed = [*CLOSED]
    sorts = (*surfaces, *closed, *APPLIANCES)
    # ALFWorld numbers names by what stands before "_bar_", and takes a basin for a part of its sink.
    places = [
        f"{sort.replace('basin', '')}_bar_{number}{'_basin' * ('basin' in sort)}" for number, sort in enumerate(sorts)
    ]
    kind = chance.choice([thing for thing in THINGS if task_type != TYPES[4] or thing != "candle"])
    task = task_of(task_type, kind, chance.choice((*surfaces, *sorted({*closed}))))
    others = [thing for thing in THINGS if thing != kind]
    things = [kind] * task.wanted + chance.sample(others, 5)
    kept = [place for place in places if sort_of(place) not in (*APPLIANCES, *task.words.strip(".").split())]
    # Where it lies decides what a search needs: more often than not it is a closed place.
    inside = [place for place in kept if sort_of(place) in CLOSED]
    lies = [chance.choice(inside if inside and chance.random() < 0.5 else kept) for _ in things]
    problem = problem_of(places, things, lies, task.goal, lamp=places[0])
    return {"pddl_domain": DOMAIN, "grammar": grammar(task.words), "pddl_problem": problem, "solvable": True}


def task_of(task_type: str, kind: str, sort: str) -> Task:
    """Return the task of a type with a kind of thing, and a sort of place where it belongs."""
    placed = f"(exists (?o - object ?r - receptacle) (and (made ?o {kind}) (sorted ?r {sort}) (in ?o ?r){{}}))"
    match TYPES.index(task_type):
        case 1:
            lit = f"(exists (?o - object ?l - object) (and (made ?o {kind}) (holds agent1 ?o) (lit ?l)))"
            return Task(f"look at {kind} under the desklamp.", lit, kind)
        case 2:
            return Task(f"put a clean {kind} in {sort}.", placed.format(" (washed ?o)"), kind)
        case 3:
            return Task(f"put a hot {kind} in {sort}.", placed.format(" (heated ?o)"), kind)
        case 4:
            return Task(f"put a cool {kind} in {sort}.", placed.format(" (cooled ?o)"), kind)
        case 5:
            both = f"(in {kind}_bar_0 ?r) (in {kind}_bar_1 ?r)"
            return Task(
                f"put two {kind} in {sort}.", f"(exists (?r - receptacle) (and (sorted ?r {sort}) {both}))", kind, 2
            )
    return Task(f"put a {kind} in {sort}.", placed.format(""), kind)


def problem_of(places: Sequence[str], things: Sequence[str], lies: Sequence[str], goal: str, lamp: str) -> str:
    """Return the problem: things by kind and the place where each lies, a lamp, and the agent in the middle."""
    names = [f"{kind}_bar_{number}" for number, kind in enumerate(things)]
    sorts, kinds = sorted({sort_of(place) for place in places}), sorted({*things, "desklamp"})
    facts = ["(at agent1 middle)", f"(in desklamp_bar_0 {lamp})", "(switchable desklamp_bar_0)"]
    facts += ["(made desklamp_bar_0 desklamp)", "(= (total-cost) 0)"]
    for place in places:
        facts += [f"(reachable {place})", f"(sorted {place} {sort_of(place)})"]
        facts += [f"({APPLIANCES[sort_of(place)]} {place})"] if sort_of(place) in APPLIANCES else []
        facts += [f"(closable {place})"] if sort_of(place) in (*CLOSED, "fridge", "microwave") else []
    for name, kind, place in zip(names, things, lies, strict=True):
        facts += [f"(made {name} {kind})", f"(portable {name})", f"(in {name} {place})"]
    objects = [
        "agent1 - agent",
        *(f"{place} - receptacle" for place in ("middle", *places)),
        *(f"{name} - object" for name in ("desklamp_bar_0", *names)),
        *(f"{sort} - sort" for sort in sorts),
        *(f"{kind} - kind" for kind in kinds),
    ]
    lines = "\n    ".join
    return (
        f"(define (problem chores)\n (:domain household)\n (:objects\n    {lines(objects)})\n"
        f" (:init\n    {lines(facts)})\n (:goal {goal})\n (:metric minimize (total-cost)))\n"
    )


def grammar(task: str) -> str:
    """Return what the game says, in TextWorld's language of commands."""
    rules = RULES | {"task": [{"rhs": f"Your task is to: {task}"}]}
    parts = [f'grammar :: """\n{json.dumps(rules, indent=1)}\n""";']
    for action, (template, rule) in COMMANDS.items():
        parts.append(f'action {action} {{\n template :: "{template}";\n feedback :: "#{rule}#";\n}}')
    return "\n\n".join(parts) + "\n"


def sort_of(place: str) -> str:
    """Return the sort of a place by its name."""
    return place.partition("_bar_")[0] + "basin" * place.endswith("_basin")


if __name__ == "__main__":
    main()
