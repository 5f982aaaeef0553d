"""The gate's possible verdicts on a candidate."""

from enum import StrEnum

from skillopt_airflow.core.types import Value


class Action(StrEnum):
    """The gate's action on a candidate; indecisive and underpowered neither accept nor reject it."""

    ACCEPT_NEW_BEST = "accept_new_best"
    ACCEPT = "accept"
    REJECT = "reject"
    INDECISIVE = "indecisive"
    """Too much is missing: the same evaluation is worth another try."""
    UNDERPOWERED = "underpowered"
    """Nothing is missing, but the two skills differ on too few items for the policy's test to say yes."""

    @property
    def accepted(self) -> bool:
        """True if the candidate becomes the current skill."""
        return self in (Action.ACCEPT_NEW_BEST, Action.ACCEPT)


class Verdict(Value):
    """A policy's answer: accept, reject, indecisive or underpowered."""

    action: Action
    reason: str = ""
    """The finding that decided beyond the means, or empty."""
    statistic: float | None = None
    """The p-value of exact_paired."""
