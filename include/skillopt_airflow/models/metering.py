"""From pydantic-ai's account of a conversation to rows of the usage table."""

import logging
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from skillopt_airflow.core.types import ModelCall

if TYPE_CHECKING:
    from pydantic_ai.usage import RunUsage

ANSWERED = 200

log = logging.getLogger(__name__)


def calls_of(
    usage: "RunUsage",
    *,
    role: Literal["target", "optimizer"],
    stage: str,
    model: str,
    status: int,
    started: float,
    seconds: float,
) -> list[ModelCall]:
    """A row a request, since a provider takes money for an answer that is asked for again, too.

    Args:
        usage: of all requests that were answered, whose tokens and seconds the rows share evenly.
        role: whose model it is.
        stage: what it was asked for.
        model: its name.
        status: HTTP status of the last request; if it is not 200, that one is a row of its own without tokens.
        started: Unix time in seconds.
        seconds: of all together.
    """
    answered = [ANSWERED] * usage.requests
    statuses = answered if answered and status == ANSWERED else [*answered, status]
    prompts, completions = (
        _shares(all_of_them, usage.requests) for all_of_them in (usage.input_tokens, usage.output_tokens)
    )
    each = seconds / len(statuses)
    log.info(
        "%s: status %d, %d tokens in, %d out, %.1f s",
        stage,
        status,
        usage.input_tokens,
        usage.output_tokens,
        seconds,
    )
    return [
        ModelCall(
            role=role,
            stage=stage,
            model=model,
            http_status=one,
            attempts=1,
            prompt_tokens=prompt,
            completion_tokens=completion,
            started=started + index * each,
            seconds=each,
        )
        for index, (one, prompt, completion) in enumerate(zip_longest(statuses, prompts, completions, fillvalue=0))
    ]


def _shares(tokens: int, requests: int) -> list[int]:
    """As even as whole numbers can be; all in one if nothing was answered."""
    each, rest = divmod(tokens, max(1, requests))
    return [each + (index < rest) for index in range(max(1, requests))]
