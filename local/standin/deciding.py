"""What the stand-in says next: as optimizer if the client offers the tool of a stage, else as target."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from local.standin.aggregate import learning_rate, merge, rank
from local.standin.appendix import consolidate
from local.standin.conversation import Call, Conversation, Reply
from local.standin.deep_reflect import deep_reflect
from local.standin.epoch_end import meta_reflect, meta_skill, slow_update
from local.standin.epoch_requests import parse_meta_reflect, parse_meta_skill, parse_slow_update
from local.standin.reflect import reflect, reflect_rewrite, reflect_skill_aware
from local.standin.requests import (
    parse_consolidate,
    parse_deep_reflect,
    parse_edits,
    parse_learning_rate,
    parse_merge,
    parse_reflect,
    parse_reflect_rewrite,
)
from local.standin.rewriting import rewrite
from local.standin.target import act
from skillopt_airflow.core.errors import ModelError

STAGES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "reflect_result": lambda prompt: reflect(parse_reflect(prompt)),
    "merge_result": lambda prompt: merge(parse_merge(prompt)),
    "rank_result": lambda prompt: rank(parse_edits(prompt)),
    "reflect_skill_aware_result": lambda prompt: reflect_skill_aware(parse_reflect(prompt)),
    "reflect_rewrite_result": lambda prompt: reflect_rewrite(parse_reflect_rewrite(prompt)),
    "learning_rate_result": lambda prompt: learning_rate(parse_learning_rate(prompt)),
    "rewrite_result": lambda prompt: rewrite(parse_edits(prompt)),
    "deep_reflect_result": lambda prompt: deep_reflect(parse_deep_reflect(prompt)),
    "consolidate_result": lambda prompt: consolidate(parse_consolidate(prompt)),
    "slow_update_result": lambda prompt: slow_update(parse_slow_update(prompt)),
    "meta_skill_result": lambda prompt: meta_skill(parse_meta_skill(prompt)),
    "meta_reflect_result": lambda prompt: meta_reflect(parse_meta_reflect(prompt)),
}
STAGE_MARK = "_result"


def decide(conversation: Conversation) -> Reply:
    """The next turn, a pure function of the conversation.

    Raises:
        ModelError: it asks for a stage that the stand-in does not know, or lacks a part that a stage needs.
    """
    asked = [name for name in conversation.tools if name.endswith(STAGE_MARK)]
    if not asked:
        return act(conversation)
    stage = next((name for name in asked if name in STAGES), None)
    if stage is None:
        raise ModelError(f"tools: the stand-in knows {', '.join(STAGES)}; got {', '.join(asked)}")
    arguments = json.dumps(STAGES[stage](conversation.user_text), ensure_ascii=False)
    return Reply(calls=(Call(stage, arguments),))
