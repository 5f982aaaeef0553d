"""Failures of a model server by HTTP status: which may pass, which come again, and what to do about those."""

from collections.abc import Mapping, Sequence

from skillopt_airflow.core.failure_reasons import FailureReason
from skillopt_airflow.core.types import Trajectory

UNREADABLE = "unreadable"
"""In the place of a status, where what came is no answer."""
FIRST_ITEMS = 8
"""Items of a chunk after which the others are not tried, if all of these failed alike."""
ADDRESS = "its host, which for most servers ends in /v1"
ADVICE: Mapping[int, str] = {
    400: "correct the name of its model, or the settings under model.* that this server does not take",
    401: "correct its password",
    402: "its account has to be topped up",
    403: "correct its password, or give its key the right to use the model",
    404: f"correct the name of its model, or {ADDRESS}",
    405: f"correct {ADDRESS}",
    422: "correct the name of its model, or the settings under model.* that this server does not take",
}
"""Advice about a connection by its server's answer, for each answer that refuses the same request every time."""


def may_pass(status: int) -> bool:
    """Return whether the same request may be answered later: a time-out, an overload, a fault of the server."""
    return status in (408, 409, 429) or status >= 500


def advice(status: int) -> str:
    """Return what to do with a connection after this status; of 0 or 200, what came was no answer."""
    return ADVICE.get(status, f"correct {ADDRESS}: no model server answers there")


def lasting_error(status: int | None) -> str:
    """Return a trajectory's mark of an error that would come again; empty for any other."""
    return str(status) if status in ADVICE else ""


def hopeless(first: Sequence[Trajectory], items: int) -> FailureReason | None:
    """Return why a chunk of so many items is given up: the first of them, or all if they are few, failed alike.

    Only errors count that no retry mends; None as long as there is hope.
    """
    wanted = min(FIRST_ITEMS, items)
    looked_at = first[:wanted]
    kinds = {one.lasting_error for one in looked_at}
    if len(looked_at) < wanted or len(kinds) != 1 or kinds == {""}:
        return None
    return FailureReason.of(looked_at, wanted)
