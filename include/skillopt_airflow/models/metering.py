"""A pydantic-ai model whose calls become rows of the usage table."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Self, cast

from anyio import to_thread
from anyio.from_thread import start_blocking_portal
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from skillopt_airflow.core.budget import Role
from skillopt_airflow.core.errors import AnswerCut, BudgetUsedUp, ModelError
from skillopt_airflow.core.hidden_text import storable
from skillopt_airflow.core.types import JsonObject, ModelCall

ANSWERED = 200

log = logging.getLogger(__name__)


@dataclass
class Metered:
    """The usage of a call so far."""

    usage: RunUsage = field(default_factory=RunUsage)
    status: int = 0
    """HTTP status of the last request."""
    is_refused: bool = False
    """Whether the budget did not allow a further request."""


class _BegunModel(WrapperModel):
    """A model whose requests each have a beginning that may refuse them."""

    def __init__(self, wrapped: Model, begin: Callable[[], None]) -> None:
        super().__init__(wrapped)
        self._begin = begin

    async def request(self, *asked: Any, **options: Any) -> ModelResponse:
        await to_thread.run_sync(self._begin)
        return await super().request(*asked, **options)


class MeteredModel:
    """A model that many threads may ask inside the `with` block.

    All calls share one event loop, because the provider's client keeps connections that belong to one.

    `redact` takes the secrets out of an error's words, since a server may repeat the key, and runs keep errors. `begin`
    is called before each request, in a thread; it raises BudgetUsedUp where none may be made.
    """

    def __init__(
        self,
        model: Model,
        on_call: Callable[[ModelCall], None],
        role: Role,
        settings: JsonObject,
        max_attempts: int,
        redact: Callable[[str], str],
        begin: Callable[[], None] | None = None,
    ) -> None:
        self.role = role
        self._redact = redact
        self._model = model if begin is None else _BegunModel(model, begin)
        self._on_call = on_call
        chosen = {**settings, "max_retries": max_attempts - 1}
        self._seconds = cast("float", settings.get("timeout", math.inf)) * max_attempts
        """The limit of all tries together; a client may take none for each of them, as boto3's does not."""
        if self._seconds < math.inf:
            chosen["request_timeout"] = self._seconds
        known = {name: value for name, value in chosen.items() if name not in model.unsupported_settings}
        self._settings = cast("ModelSettings", known)
        self._portals = ExitStack()
        self.models = len(model.models) if isinstance(model, FallbackModel) else 1
        """How many models may be asked one after the other."""

    def __enter__(self) -> Self:
        self._portal = self._portals.enter_context(start_blocking_portal())
        self._portals.enter_context(self._portal.wrap_async_context_manager(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._portals.close()

    @contextmanager
    def _metered(self, stage: str) -> Iterator[Metered]:
        """Record what a call used, however the block ends."""
        metered, started, clock = Metered(), time.time(), time.monotonic()
        try:
            yield metered
            metered.status = ANSWERED
        except BudgetUsedUp:
            metered.is_refused = True
            raise
        except ModelError as error:
            cause = error.__cause__
            answered = isinstance(error, AnswerCut) or isinstance(cause, UnexpectedModelBehavior)
            metered.status = cause.status_code if isinstance(cause, ModelHTTPError) else ANSWERED if answered else 0
            error.args = (self._redact(storable(str(error))),)
            raise
        finally:
            seconds = time.monotonic() - clock
            for call in calls_of(metered, self.role, stage, self._model.model_name, started, seconds):
                self._on_call(call)


def calls_of(metered: Metered, role: Role, stage: str, model: str, started: float, seconds: float) -> list[ModelCall]:
    """Return a row for each request, since a provider also charges for an answer that is asked for again.

    The rows share the tokens and seconds evenly. If the last status is not 200, that request is a row of its own
    without tokens.
    """
    usage, status = metered.usage, metered.status
    tokens = (usage.input_tokens, usage.output_tokens)
    answered = [ANSWERED] * usage.requests
    ends = metered.is_refused or (answered and status == ANSWERED)
    statuses = answered if ends else [*answered, status]
    if not statuses:
        return []
    prompts, completions = (_shares(together, usage.requests) for together in tokens)
    each = seconds / len(statuses)
    log.info("%s: status %d, %d tokens in, %d out, %.1f s", stage, status, *tokens, seconds)
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
    each, rest = divmod(tokens, max(1, requests))
    return [each + (index < rest) for index in range(max(1, requests))]
