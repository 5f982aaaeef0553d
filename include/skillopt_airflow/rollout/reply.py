"""The result of one request to the target."""

from dataclasses import dataclass

from skillopt_airflow.core.types import Status


@dataclass(frozen=True)
class Reply:
    """The result of one request; `error` is empty exactly if the status is a scored one."""

    status: Status
    error: str = ""
    lasting_error: str = ""
    """As of a trajectory."""
    text: str = ""
    """Without the model's thinking."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
