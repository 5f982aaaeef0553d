"""The number of rows that the configuration requires of each split."""

from collections.abc import Iterator

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.run_gates import gates_of
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Split, Value


class Need(Value):
    """The fewest rows that a split must have."""

    split: Split
    rows: int
    reason: str
    """The part of a run that needs them, as a clause behind the number."""


def evaluation_needs(rules: EvaluationGroup) -> Iterator[Need]:
    """Yield what evaluations need: a file that was cut short would be measured on fewer items than configured."""
    for split, knob, limit in (
        (Split.VAL, "val_limit", rules.val_limit),
        (Split.TEST, "test_limit", rules.test_limit),
    ):
        if limit is not None:
            yield Need(split=split, rows=limit, reason=f"for evaluation.{knob} = {limit}")


def training_needs(config: TrainConfig) -> list[Need]:
    """Return what a training needs: that, and so many items that its gates can accept anything at all.

    Raises:
        ConfigError: a limit leaves a gate too few items.
    """
    rules = config.evaluation
    needs = list(evaluation_needs(rules))
    for gate in gates_of(config):
        reason, limit = f"for {gate.knob} = {gate.rules.gate_policy} to accept anything", rules.limit(gate.split)
        if limit is not None and limit < gate.fewest:
            raise ConfigError(
                f"evaluation.{gate.split}_limit = {limit}: at least {gate.fewest} items are needed {reason}"
            )
        if gate.fewest > 1:
            needs.append(Need(split=gate.split, rows=gate.fewest, reason=reason))
    return needs
