"""The failures of a task that Airflow should try again."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.errors import EngineUnavailable, ModelUnavailable, SkillOptError, StoreUnavailable


@contextmanager
def wrong_input_fails() -> Iterator[None]:
    """Fail the task for good, with one sentence, on errors that a retry would meet again.

    A store, an engine or a model that cannot answer now is tried again, as the task's `retries` say.
    """
    try:
        yield
    except (StoreUnavailable, EngineUnavailable, ModelUnavailable):
        raise
    except SkillOptError as error:
        raise AirflowFailException(str(error)) from None
