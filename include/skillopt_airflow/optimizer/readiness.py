"""One small question before anything is paid for: does the optimizer answer in the form that it is asked for?"""

from pydantic import Field

from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import ModelAnswer


class ReadyAnswer(ModelAnswer):
    """The answer of a preflight call."""

    ready: bool = Field(description="Always true.")


def check_answers(optimizer: Optimizer) -> None:
    """Ask for one structured answer; any that fits its schema will do.

    Raises:
        ModelOutputError: the answer stayed outside its schema.
        ModelError: there was none.
    """
    optimizer.ask("preflight", prompts.load("preflight"), "Are you ready?", ReadyAnswer)
