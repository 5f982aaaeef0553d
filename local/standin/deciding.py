"""The stand-in's next turn: as optimizer if the client offers the tool of a stage, else as target."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from local.standin.acting import act
from local.standin.agreement import judge, judge_steps
from local.standin.conversation import Call, Conversation, Reply
from local.standin.epoch_answers import meta_reflect, meta_skill, slow_update
from local.standin.pooling import consolidate, learning_rate, merge, merge_rewrites, rank
from local.standin.questioning import deep_reflect
from local.standin.reflecting import reflect, reflect_rewrite, reflect_skill_aware
from local.standin.rewriting import rewrite
from local.standin.stage_request import StageRequest
from skillopt_airflow.core.errors import ModelError


def _stage(answer: Callable[[StageRequest], dict[str, Any]], tags: str) -> Callable[[str], dict[str, Any]]:
    return lambda prompt: answer(StageRequest.read(prompt, tags))


STAGES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "reflect_result": _stage(reflect, "skill budget outcome trajectories step_buffer"),
    "merge_result": _stage(merge, "skill priority edits"),
    "rank_result": _stage(rank, "skill edits"),
    "reflect_skill_aware_result": _stage(reflect_skill_aware, "skill budget outcome trajectories step_buffer"),
    "reflect_rewrite_result": _stage(reflect_rewrite, "skill outcome trajectories step_buffer"),
    "merge_rewrites_result": _stage(merge_rewrites, "skill priority edits"),
    "learning_rate_result": _stage(learning_rate, "skill most edits step_buffer"),
    "rewrite_result": _stage(rewrite, "skill edits"),
    "deep_reflect_result": _stage(deep_reflect, "skill trajectories"),
    "consolidate_result": _stage(consolidate, "skill notes most"),
    "slow_update_result": _stage(slow_update, "skill guidance comparison"),
    "meta_skill_result": _stage(meta_skill, "memory comparison epoch_steps"),
    "meta_reflect_result": _stage(meta_reflect, "skill budget epoch_steps"),
    "judge_result": judge,
    "judge_steps_result": judge_steps,
    "preflight_result": _stage(lambda request: {"ready": True}, ""),
}
STAGE_MARK = "_result"


def decide(conversation: Conversation) -> Reply:
    """Return the next turn, a pure function of the conversation.

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
