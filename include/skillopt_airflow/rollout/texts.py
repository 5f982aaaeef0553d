"""Texts of a trajectory: reasons of failures."""

from skillopt_airflow.core.types import Status

MAX_ERROR_CHARS = 500
REFUSALS = {402: Status.BUDGET, 408: Status.TIMEOUT, 504: Status.TIMEOUT}
"""Meaning of the gateway's HTTP statuses; any other is a model_error."""


def reason(text: str) -> str:
    """Return an error as one short line."""
    return " ".join(text.split())[:MAX_ERROR_CHARS]
