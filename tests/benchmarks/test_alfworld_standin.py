import pytest

from benchmarks.alfworld.adapter import BENCHMARK
from benchmarks.alfworld.standin import STANDIN, symptoms, use_tool
from local.standin.stage_request import SeenTrajectory
from skillopt_airflow.core.sessions import Episode, Observation
from skillopt_airflow.core.types import Message

ROOM = ("go to cabinet 1", "go to desk 1", "go to drawer 1", "go to fridge 1", "go to sinkbasin 1", "inventory", "look")


def seen(text: str, *more: str) -> Observation:
    return Observation(text=text, admissible=(*ROOM, *more))


def episode(task: str, *observations: Observation) -> Episode:
    played = Episode(seen(f"You are in the middle of a room.\n\nYour task is to: {task}"))
    for observation in observations:
        vain = observation.text == "Nothing happens."
        played = played.after("put cloth 1 in/on drawer 1" if vain else "something", observation)
    return played


def command(played: Episode, *active: str) -> str:
    return BENCHMARK.action(STANDIN.respond(frozenset(active), BENCHMARK.prompt(played, 2), ()))


CLOSED = seen("You arrive at the drawer 1. The drawer 1 is closed.", "open drawer 1")
TAKEN = seen("You pick up the cloth 1 from the cabinet 1.", "put cloth 1 in/on cabinet 1")
AT_SINK = seen("You arrive at the sinkbasin 1. On the sinkbasin 1, you see nothing.", "clean cloth 1 with sinkbasin 1")
CLEANED = seen("You clean the cloth 1 using the sinkbasin 1.", "put cloth 1 in/on sinkbasin 1")


CUP_ON_DESK = seen("You arrive at the desk 1. On the desk 1, you see a cup 1.", "take cup 1 from desk 1")
CUP_IN_DRAWER = seen("You open the drawer 1. In it, you see a cup 1.", "take cup 1 from drawer 1")
LAMP = seen("You arrive at the desk 1. On the desk 1, you see a lamp 1.", "use desklamp 1", "put book 1 in/on desk 1")
WITHOUT_EFFECT = seen("Nothing happens.", "open drawer 1")
BRING = "put a clean cloth in drawer."


@pytest.mark.parametrize(
    ("played", "active", "wanted"),
    [
        (episode(BRING, CLOSED), ("open_closed",), "open drawer 1"),
        (episode(BRING, CLOSED), ("one_by_one",), "go to fridge 1"),
        (episode("clean some cloth and put it in drawer.", TAKEN), (), "go to sinkbasin 1"),
        (episode(BRING, TAKEN, AT_SINK), (), "clean cloth 1 with sinkbasin 1"),
        (episode(BRING, AT_SINK, CLEANED), (), "go to drawer 1"),
        (episode(BRING, CLEANED, CLOSED), (), "put cloth 1 in/on drawer 1"),
        (episode(BRING, CLEANED, CLOSED, WITHOUT_EFFECT), ("no_effect",), "open drawer 1"),
        (episode("put two cup in desk.", CUP_ON_DESK), ("one_by_one",), "go to drawer 1"),
        (episode("put a cup in desk.", CUP_IN_DRAWER), (), "take cup 1 from drawer 1"),
        (episode("look at book under the desklamp.", LAMP), (), "use desklamp 1"),
        (episode("examine the book with the desklamp."), ("one_by_one", "surfaces_first"), "go to desk 1"),
        (episode("put a cup in desk.", CLOSED), ("inventory",), "inventory"),
        (episode("sing a song."), (), "look"),
    ],
)
def test_the_next_command(played: Episode, active: tuple[str, ...], wanted: str):
    assert command(played, *active) == wanted


def test_the_tool_is_used_until_the_task_is_done():
    task = BENCHMARK.task(episode("put a cup in desk.").opening)
    assert STANDIN.speaks_of(task)
    first = use_tool(frozenset({"one_by_one"}), task, [])
    assert first.calls[0].arguments == '{"action": "go to cabinet 1"}'
    results = [BENCHMARK.shown(seen("You arrive at the cabinet 1. The cabinet 1 is closed.", "open cabinet 1"))]
    assert use_tool(frozenset({"open_closed"}), task, results).calls[0].arguments == '{"action": "open cabinet 1"}'
    assert use_tool(frozenset(), task, ["You put the cup 1.\n\nThe task is done."]).text == "It is done."


def failed(*texts: str) -> SeenTrajectory:
    prompt = Message(role="user", content=BENCHMARK.prompt(episode("put a cup in desk."), 2))
    told = tuple(Message(role="user", content=text) for text in texts)
    feedback = "The task is not done: not won after 50 actions."
    return SeenTrajectory(item_id="x", feedback=feedback, messages=(prompt, *told))


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["You are not carrying anything."] * 9, {"inventory": False}),
        (["Nothing happens."] * 4, {"no_effect": True}),
        (["You arrive at the drawer 1. The drawer 1 is closed."] * 2, {"open_closed": True}),
        (["You arrive at the desk 1. On the desk 1, you see nothing."] * 3, {"one_by_one": True}),
        (["You arrive at the desk 1. On the desk 1, you see nothing."], {"surfaces_first": True}),
    ],
)
def test_what_a_failed_task_points_to(texts: list[str], wanted: dict[str, bool]):
    trajectory = failed(*texts)
    assert STANDIN.shown_by(trajectory)
    assert symptoms(trajectory) == wanted
    case = STANDIN.case(trajectory)
    assert case.verdict(frozenset(name for name, on in wanted.items() if on)).right
    assert not case.verdict(frozenset() if True in wanted.values() else frozenset({"inventory"})).right


def test_a_task_that_was_done_points_to_nothing():
    done = failed("Nothing happens.").model_copy(update={"feedback": "The task is done: won after 3 actions."})
    assert symptoms(done) == {}
    assert not STANDIN.case(done).verdict(frozenset()).right
