"""The failures of a task that Airflow should try again, and the words that it is told."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from skillopt_airflow.core.errors import UNAVAILABLE, ModelUnreachable, SkillOptError
from skillopt_airflow.core.failure_reasons import RolloutTally, too_few

log = logging.getLogger(__name__)


@contextmanager
def wrong_input_fails(*, awaits_models: bool = False) -> Iterator[None]:
    """Fail the task for good, with one sentence, on errors that a retry would meet again.

    A store, an engine or a model that cannot answer now is tried again, as the task's `retries` say.

    Args:
        awaits_models: whether so is one at whose address nothing answers: somebody who has just triggered a run wants
            to hear that the address is wrong.
    """
    try:
        yield
    except SkillOptError as error:
        if isinstance(error, UNAVAILABLE) and (awaits_models or not isinstance(error, ModelUnreachable)):
            raise
        raise AirflowFailException(str(error)) from None


def tell_rollouts(tally: RolloutTally, wanted: float, *, may_retry: bool) -> None:
    """Log what became of a task's rollouts, and ask for a retry if too few of them have a score.

    Raises:
        AirflowException: fewer than wanted have one, and Airflow may try again; the text names the reason.
    """
    log.info("%s", tally)
    if tally.cuts:
        log.warning("%s", tally.cuts)
    if tally.coverage < wanted:
        words = too_few(tally.coverage, wanted, tally.reason)
        if may_retry:
            raise AirflowException(words)
        # Without a reason the rest did not run because it could not change the verdict.
        if tally.reason is not None:
            log.warning("%s", words)
