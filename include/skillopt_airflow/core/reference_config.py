"""The configuration of a run of the reference implementation (github.com/microsoft/SkillOpt), in our knobs."""

from collections.abc import Mapping

from pydantic import JsonValue

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import JsonObject

KNOBS: Mapping[str, tuple[str, ...]] = {
    "num_epochs": ("train.num_epochs",),
    "batch_size": ("train.batch_size",),
    "accumulation": ("train.accumulation",),
    "seed": ("train.seed",),
    "minibatch_size": ("gradient.minibatch_size",),
    "merge_batch_size": ("gradient.merge_batch_size",),
    "analyst_workers": ("gradient.analyst_workers",),
    "failure_only": ("gradient.failure_only",),
    "edit_budget": ("optimizer.learning_rate",),
    "min_edit_budget": ("optimizer.min_learning_rate",),
    "lr_scheduler": ("optimizer.lr_scheduler",),
    "lr_control_mode": ("optimizer.lr_control_mode",),
    "skill_update_mode": ("optimizer.skill_update_mode",),
    "use_slow_update": ("optimizer.use_slow_update",),
    "slow_update_samples": ("optimizer.slow_update_samples",),
    "slow_update_gate_with_selection": ("optimizer.slow_update_gate",),
    "longitudinal_pair_policy": ("optimizer.longitudinal_pair_policy",),
    "use_meta_skill": ("optimizer.use_meta_skill",),
    "use_skill_aware_reflection": ("optimizer.use_skill_aware_reflection",),
    "skill_aware_appendix_source": ("optimizer.skill_aware_appendix_source",),
    "skill_aware_consolidate_threshold": ("optimizer.skill_aware_consolidate_threshold",),
    "use_gate": ("evaluation.use_gate",),
    "gate_metric": ("evaluation.gate_metric",),
    "gate_mixed_weight": ("evaluation.gate_mixed_weight",),
    "eval_test": ("evaluation.eval_test",),
    "sel_env_num": ("evaluation.val_limit",),
    "test_env_num": ("evaluation.test_limit",),
    "reasoning_effort": ("model.reasoning_effort", "model.optimizer_reasoning_effort"),
}
"""Its flat keys, and ours."""
ZERO_IS_ALL = ("sel_env_num", "test_env_num")
"""Numbers of items, of which 0 means all."""


def own_knobs(flat: Mapping[str, JsonValue], beside: TrainConfig) -> tuple[JsonObject, list[str]]:
    """Return the settings that have a counterpart here by our paths, and the keys that have none.

    What is empty there is unset here. A value that this project does not know, or not beside the others and the
    benchmark's own settings, leaves its key among the others.
    """
    own = beside.model_dump()
    left = {key: _counterparts(key, value) for key, value in flat.items() if key in KNOBS}
    knobs: JsonObject = {}
    # Each beside those that were taken: a low rate is allowed only beside a least one that is as low.
    while key := next((key for key, found in left.items() if _known(own, knobs | found)), ""):
        knobs |= left.pop(key)
    return knobs, sorted([*left, *(flat.keys() - KNOBS.keys())])


def _counterparts(key: str, value: JsonValue) -> JsonObject:
    unset = value in (None, "") or (key in ZERO_IS_ALL and value == 0)
    return {} if unset else dict.fromkeys(KNOBS[key], value)


def _known(own: JsonObject, knobs: JsonObject) -> bool:
    try:
        TrainConfig.from_layers(own, nest(knobs))
    except ConfigError:
        return False
    return True
