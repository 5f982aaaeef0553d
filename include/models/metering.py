"""From pydantic-ai's account of a conversation to rows of the usage table."""

import logging
from typing import TYPE_CHECKING, Literal

from include.core.types import ModelCall

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
    statuses = [ANSWERED] * usage.requests if status == ANSWERED else [*[ANSWERED] * usage.requests, status]
    statuses = statuses or [status]
    prompts = _shares(usage.input_tokens, usage.requests, len(statuses))
    completions = _shares(usage.output_tokens, usage.requests, len(statuses))
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
            prompt_tokens=prompts[index],
            completion_tokens=completions[index],
            started=started + index * each,
            seconds=each,
        )
        for index, one in enumerate(statuses)
    ]


def _shares(tokens: int, answered: int, rows: int) -> list[int]:
    """The first `answered` rows have all of them."""
    each, rest = divmod(tokens, max(1, answered))
    return [each + (index < rest) if index < max(1, answered) else 0 for index in range(rows)]
