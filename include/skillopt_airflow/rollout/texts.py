"""Texts of a trajectory: reasons of failures, and long texts made shorter."""

from skillopt_airflow.core.types import Status

MAX_ERROR_CHARS = 500
REFUSALS = {402: Status.BUDGET, 408: Status.TIMEOUT, 504: Status.TIMEOUT}
"""Meaning of the gateway's HTTP statuses; any other is a model_error."""


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning, a mark, the end."""
    if len(text) <= limit:
        return text
    mark = f"\n[{len(text) - limit} characters left out]\n"
    kept = max(0, limit - len(mark))
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


def reason(text: str) -> str:
    """Return an error as one short line."""
    return " ".join(text.split())[:MAX_ERROR_CHARS]
