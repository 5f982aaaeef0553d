"""A pydantic-ai model whose calls become rows of the usage table, and their prices.

Prices are those of the genai-prices package. Nothing is downloaded.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
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

from skillopt_airflow.core.config.resource_groups import Price
from skillopt_airflow.core.errors import AnswerCut, BudgetUsedUp, ModelError
from skillopt_airflow.core.run.budget import ModelPrice, Role
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import JsonObject, ModelCall

ANSWERED = 200

log = logging.getLogger(__name__)


@dataclass
class CallUsage:
    """Usage of a call so far."""

    usage: RunUsage = field(default_factory=RunUsage)
    status: int = 0
    """HTTP status of the last request."""
    is_refused: bool = False
    """True if the budget allowed no further request."""


class _GuardedModel(WrapperModel):
    """A model that calls `begin` before each request, which may raise."""

    def __init__(self, wrapped: Model, begin: Callable[[], None]) -> None:
        super().__init__(wrapped)
        self._begin = begin

    async def request(self, *arguments: Any, **options: Any) -> ModelResponse:
        await to_thread.run_sync(self._begin)
        return await super().request(*arguments, **options)


class MeteredModel:
    """A model that many threads may call inside the `with` block.

    All calls share one event loop, because the connections of the provider's client belong to one.

    `redact` removes secrets from error messages, since servers may repeat the key. `begin` is called in a thread before
    each request, and may raise BudgetUsedUp.
    """

    def __init__(
        self,
        model: Model,
        on_call: Callable[[ModelCall], None],
        settings: JsonObject,
        *,
        begin: Callable[[], None] | None = None,
        max_attempts: int = 1,
        role: Role = "target",
        redact: Callable[[str], str] = str,
    ) -> None:
        self.role = role
        self._redact = redact
        self._model = model if begin is None else _GuardedModel(model, begin)
        self._on_call = on_call
        chosen = {**settings, "max_retries": max_attempts - 1}
        self._seconds = cast("float", settings.get("timeout", math.inf)) * max_attempts
        """Time limit of all tries together, because boto3 accepts none per try."""
        if self._seconds < math.inf:
            chosen["request_timeout"] = self._seconds
        known = {name: value for name, value in chosen.items() if name not in model.unsupported_settings}
        self._settings = cast("ModelSettings", known)
        self._portals = ExitStack()
        self.models = len(model.models) if isinstance(model, FallbackModel) else 1
        """The model and its fallbacks."""

    def __enter__(self) -> Self:
        self._portal = self._portals.enter_context(start_blocking_portal())
        self._portals.enter_context(self._portal.wrap_async_context_manager(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._portals.close()

    @contextmanager
    def _metered(self, stage: str) -> Iterator[CallUsage]:
        """Record the usage of a call, also if the block raises."""
        metered, started, clock = CallUsage(), time.time(), time.monotonic()
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


def calls_of(metered: CallUsage, role: Role, stage: str, model: str, started: float, seconds: float) -> list[ModelCall]:
    """Return one row per request, since providers charge for each of them.

    The rows share the tokens and seconds evenly. If the last status isn't 200, that request has a separate row without
    tokens.
    """
    usage, status = metered.usage, metered.status
    tokens = (usage.input_tokens, usage.output_tokens)
    answered = [ANSWERED] * usage.requests
    ends = metered.is_refused or (answered and status == ANSWERED)
    statuses = answered if ends else [*answered, status]
    if not statuses:
        return []
    prompts, completions = (_shares(total, usage.requests) for total in tokens)
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


SAMPLE_TOKENS = 1000
"""Below every tier of the table, so that the price of this sample is the base price."""


def price_of(
    model: str, overrides: Mapping[str, Price], host: str = "", at: datetime | None = None
) -> ModelPrice | None:
    """Return a model's price, or None if it is unknown.

    It is the list price of the base tier, without discounts for cached or batched tokens. It's too low for prompts
    above the first tier (32,000 tokens or more), and too high with a discount; `overrides` can correct both.

    Args:
        model: as in a connection, `provider:name`, such as openai-chat:gpt-5.
        overrides: prices by the same names, which take precedence.
        host: the connection's URL, if any. It then identifies the provider, because OpenAI-compatible servers don't
            charge OpenAI's price.
        at: time of the call. Default: now.
    """
    from genai_prices import Usage, calc_price

    override = overrides.get(model)
    if override is not None:
        return ModelPrice(input=override.input, output=override.output, source="budget.prices")
    provider, _, name = model.partition(":")
    if not name:
        return None
    sample, moment = Usage(input_tokens=SAMPLE_TOKENS, output_tokens=SAMPLE_TOKENS), at or datetime.now(UTC)
    seller: Any = {"provider_api_url": host} if host else {"provider_id": provider}
    try:
        price = calc_price(sample, name, genai_request_timestamp=moment, **seller)
    except LookupError:
        return None
    # Some models have no price for text, which must not count as free.
    if price.model_price.input_mtok is None or price.model_price.output_mtok is None:
        return None
    to_million = 1_000_000 // SAMPLE_TOKENS
    return ModelPrice(
        input=float(price.input_price * to_million),
        output=float(price.output_price * to_million),
        source=table_date(moment),
        context=price.model.context_window,
    )


def table_date(at: datetime) -> str:
    """Return the version and the newest effective price, such as `genai-prices 0.2.3, newest price of 2026-11-10`."""
    from genai_prices import __version__

    newest = max(day for day in _starts() if day <= at.date())
    return f"genai-prices {__version__}, newest price of {newest.isoformat()}"


def _starts() -> set[date]:
    from genai_prices.data import providers
    from genai_prices.types import ModelPrice as Prices
    from genai_prices.types import StartDateConstraint

    models = [model for provider in providers for model in provider.models]
    conditions = [
        *(price.constraint for model in models if not isinstance(model.prices, Prices) for price in model.prices),
        *(variant.constraint for model in models for variant in model.price_variants or ()),
    ]
    return {condition.start_date for condition in conditions if isinstance(condition, StartDateConstraint)}
