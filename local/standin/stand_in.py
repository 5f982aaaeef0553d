"""The stand-in's next turn: as optimizer if the client offers the tool of a stage, else as target."""

import json
from functools import cache

from local.standin.conversation import Call, Conversation, Reply
from local.standin.economy import World
from local.standin.known_items import Finder, KnownItems, of_benchmarks, state_of_benchmarks
from local.standin.standin_optimizer import Optimizer
from local.standin.standin_target import Target
from skillopt_airflow.core.errors import ModelError

STAGE_MARK = "_result"


class StandIn:
    """Target and optimizer of one world; usable from many threads."""

    def __init__(self, world: World, items: Finder) -> None:
        self.world = world
        self._target = Target(world, items)
        self._stages = Optimizer(world).stages

    def reply(self, conversation: Conversation, draw: int = 1) -> Reply:
        """Return the next turn, a pure function of the conversation and of how often it was asked for."""
        asked = [name for name in conversation.tools if name.endswith(STAGE_MARK)]
        if not asked:
            return self._target.reply(conversation, draw)
        stage = next((name for name in asked if name in self._stages), None)
        if stage is None:
            raise ModelError(f"tools: the stand-in knows {', '.join(self._stages)}; got {', '.join(asked)}")
        arguments = json.dumps(self._stages[stage](conversation.user_text), ensure_ascii=False)
        return Reply(calls=(Call(stage, arguments),))


@cache
def of_all_benchmarks() -> StandIn:
    return StandIn(World(), KnownItems(of_benchmarks, state_of_benchmarks))
