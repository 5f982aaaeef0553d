"""Speculation: the next step's batch is rolled out under the present skill while a candidate is made and measured.

It is wasted if the candidate is accepted, because the next step then starts from another skill.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.edits import notes_enter
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.timeline import Moment, writes_guidance
from skillopt_airflow.core.training_groups import TrainGroup
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.training.rollout_plan import BATCH_AHEAD, Chunk, batch_chunks, store_plan
from skillopt_airflow.training.run import TrainingRun

RECENT = 3
REJECTED = 2
"""Of the RECENT last steps so many must have rejected their candidates before `auto` expects the next rejection."""


def plan_ahead(run: TrainingRun, moment: Moment) -> list[JsonObject]:
    """Plan the batch of the step that follows; return its chunks, none if no rejection is expected.

    None of a moment that is over either, to which an update of this project may add the task.
    """
    chunks = [] if run.committed(moment) else speculation(run, moment)
    # What was rolled out ahead before stays in its plan.
    return store_plan(run, moment, BATCH_AHEAD, chunks) if chunks else []


def speculation(run: TrainingRun, moment: Moment) -> list[Chunk]:
    """Return the batch of the step that follows at once, under the skill that it starts from after a rejection."""
    following = dict(batches_ahead(run.timeline, run.config)).get(moment)
    if following is None or not _pays(run, moment):
        return []
    return batch_chunks(run, "speculate", moment, following)


def batches_ahead(timeline: Sequence[Moment], config: TrainConfig) -> list[tuple[Moment, Moment]]:
    """Return the moments before whose end the batch of the step behind them may be rolled out, each with that step.

    Whether it is depends on what the moments before decide.
    """
    first = first_speculation(config.train)
    return [
        (moment, following)
        for moment, following in pairwise(timeline)
        if following.kind == "step"
        and may_precede(moment, config)
        # Behind an epoch's last step one more has been judged.
        and moment.step + (moment.kind != "step") >= first
    ]


def first_speculation(train: TrainGroup) -> float:
    """Return the number of the first step that may roll out the next batch; infinity if none does."""
    wanted = train.speculative_rollout
    return REJECTED + 1 if wanted == "auto" else 1 if wanted else math.inf


def may_precede(moment: Moment, config: TrainConfig) -> bool:
    """Return whether the skill may stay as it was, so that the batch behind a moment can begin before its end."""
    rules = config.optimizer
    if not config.evaluation.use_gate:
        return False
    if moment.kind == "step":
        return not notes_enter(rules)
    if moment.kind == "slow_update":
        # Without guidance it leaves a memory, and the skill as it is.
        return rules.slow_update_gate or not writes_guidance(moment, rules)
    return moment.kind == "meta_reflect"


def _pays(run: TrainingRun, moment: Moment) -> bool:
    wanted = run.config.train.speculative_rollout
    if run.config.budget.is_limited:
        # Tasks beside each other would each have a part of what is left.
        return False
    if wanted != "auto":
        return wanted
    steps = [one for one in run.timeline[: run.timeline.index(moment)] if one.kind == "step"]
    gates = [run.store.get_model(run.keys.moment(step).gate, GateDecision) for step in steps[-RECENT:]]
    return sum(not gate.action.accepted for gate in gates) >= REJECTED
