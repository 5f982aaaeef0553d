"""The number of rows that the configuration requires of each split."""

from collections.abc import Iterator

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate_policies import policy_of
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


def training_needs(rules: EvaluationGroup) -> list[Need]:
    """Return what a training needs: that, and a selection split on which its gate can accept anything at all.

    Raises:
        ConfigError: evaluation.val_limit leaves the gate too few items.
    """
    needs = list(evaluation_needs(rules))
    fewest = policy_of(rules).fewest_items(rules) if rules.use_gate else 1
    if fewest > 1:
        gate = f"for evaluation.gate_policy = {rules.gate_policy} to accept anything"
        if rules.val_limit is not None and rules.val_limit < fewest:
            raise ConfigError(f"evaluation.val_limit = {rules.val_limit}: at least {fewest} items are needed {gate}")
        needs.append(Need(split=Split.VAL, rows=fewest, reason=gate))
    return needs
