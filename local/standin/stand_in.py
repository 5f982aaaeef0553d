"""The stand-in's next turn: as optimizer if the client has the tool of a stage, else as target."""

import json
import re
from functools import cache

from local.standin.agent import picture_call, skill_and_task, skill_call
from local.standin.answering import next_turn
from local.standin.conversation import Call, Conversation, Reply
from local.standin.economy import World
from local.standin.known_items import Finder, KnownItem, KnownItems, of_benchmarks, state_of_benchmarks
from local.standin.standin_optimizer import Optimizer
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.tasks.protocols import PlaysSession

NOT_KNOWN = "I know only the items of the benchmarks here: <answer>unknown</answer>"
ENDED = ("The task is done", "The session is over")
IDLE = "look"
"""A command without effect."""
STAGE_MARK = "_result"
"""Suffix of the tools of optimizer stages."""
_COUNT = re.compile(r"Commands given so far: (?P<count>\d+)")


class StandIn:
    """Target and optimizer of one world; thread-safe."""

    def __init__(self, world: World, items: Finder) -> None:
        self.world, self._items = world, items
        self._stages = Optimizer(world, items).stages

    def reply(self, conversation: Conversation, sample: int = 1) -> Reply:
        """Return the next turn, a pure function of the conversation and the sample."""
        requested = [name for name in conversation.tools if name.endswith(STAGE_MARK)]
        if not requested:
            return self._work(conversation, sample)
        stage = next((name for name in requested if name in self._stages), None)
        if stage is None:
            raise ModelError(f"tools: the stand-in knows {', '.join(self._stages)}; got {', '.join(requested)}")
        arguments = json.dumps(self._stages[stage](conversation.user_text), ensure_ascii=False)
        return Reply(calls=(Call(stage, arguments),))

    def _work(self, conversation: Conversation, sample: int) -> Reply:
        """Load the skill or a picture, work on the item, or explain a previous answer."""
        first = skill_call(conversation) or picture_call(conversation)
        if first is not None:
            return Reply(calls=(first,))
        skill, task = skill_and_task(conversation)
        known = self._items.find(task, conversation.pictures)
        if known is None:
            return Reply(NOT_KNOWN)
        right = self.world.right(known.item.id, skill, sample)
        if isinstance(known.benchmark, PlaysSession):
            return _act(known, conversation, task, right=right)
        answers = [turn.text for turn in conversation.turns if turn.role == "assistant" and not turn.calls]
        if answers and conversation.turns[-1].role == "user":
            return Reply(self._explanation(known, skill, answers[-1]))
        return next_turn(known, conversation, right=right)

    def _explanation(self, known: KnownItem, skill: str, answer: str) -> str:
        nature = self.world.nature(known.item.id)
        followed = nature.rule if nature.rule and nature.rule in skill else "none of the skill's rules"
        return f"I answered {answer[:200]!r} and followed: {followed}"


def _act(known: KnownItem, conversation: Conversation, task: str, *, right: bool) -> Reply:
    """Return the next command of the game's walkthrough, or one without effect."""
    by_tool = "act" in conversation.tools
    if by_tool and any(end in conversation.turns[-1].text for end in ENDED):
        return Reply("It is done.")
    if by_tool:
        given = sum(call.name == "act" for turn in conversation.turns for call in turn.calls)
    else:
        count = _COUNT.search(task)
        given = int(count["count"]) if count else 0
    [game] = known.files(known.item.files).values()
    walkthrough = json.loads(game).get("walkthrough", ()) if right else ()
    command = walkthrough[given] if given < len(walkthrough) else IDLE
    if by_tool:
        return Reply(calls=(Call("act", json.dumps({"action": command})),))
    return Reply(f"<reason>I follow the skill.</reason><action>{command}</action>")


@cache
def of_all_benchmarks() -> StandIn:
    return StandIn(World(), KnownItems(of_benchmarks, state_of_benchmarks))
