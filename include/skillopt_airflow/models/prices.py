"""Prices of models from the dated table in the genai-prices package; nothing is downloaded."""

from collections.abc import Mapping
from datetime import UTC, date, datetime

from skillopt_airflow.core.budget import ModelPrice
from skillopt_airflow.core.resource_groups import Price

SAMPLE_TOKENS = 1000
"""Below every tier of the table, so that a price read off so many tokens is the base price."""


def price_of(
    model: str, overrides: Mapping[str, Price], host: str = "", at: datetime | None = None
) -> ModelPrice | None:
    """Return a model's price, or None if it is unknown.

    It is the list price of a plain request: the base tier where the price depends on a prompt's length, and no discount
    for cached or batched tokens. Such a price is too low for prompts above the first tier (32,000 tokens and more)
    and too high for a discount; `overrides` can correct both.

    Args:
        model: as in a connection, `provider:name`, such as openai-chat:gpt-5.
        overrides: prices by the same names, which win.
        host: the connection's own address, if it has one. The provider is then told by the address, because a server
            that speaks OpenAI's dialect does not charge OpenAI's price; at an unknown address no price is known.
        at: when the model is called; now when unset. A price that changes is the one of that moment.
    """
    from genai_prices import Usage, calc_price

    override = overrides.get(model)
    if override is not None:
        return ModelPrice(input=override.input, output=override.output, source="budget.prices")
    provider, _, name = model.partition(":")
    if not name:
        return None
    sample, moment = Usage(input_tokens=SAMPLE_TOKENS, output_tokens=SAMPLE_TOKENS), at or datetime.now(UTC)
    try:
        found = (
            calc_price(sample, name, provider_api_url=host, genai_request_timestamp=moment)
            if host
            else calc_price(sample, name, provider_id=provider, genai_request_timestamp=moment)
        )
    except LookupError:
        return None
    # The table also lists models without a price for text; a missing price would count as free.
    if found.model_price.input_mtok is None or found.model_price.output_mtok is None:
        return None
    to_million = 1_000_000 // SAMPLE_TOKENS
    return ModelPrice(
        input=float(found.input_price * to_million),
        output=float(found.output_price * to_million),
        source=table_date(moment),
        context=found.model.context_window,
    )


def table_date(at: datetime) -> str:
    """Return the table's version and the date of the newest price in force, such as
    `genai-prices 0.2.3, newest price of 2026-11-10`; the package does not date the table itself.
    """
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
