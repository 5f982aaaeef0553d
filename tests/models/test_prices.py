import socket
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data import providers
from genai_prices.types import ModelPrice as TablePrices
from genai_prices.types import TieredPrices

from skillopt_airflow.core.config.resource_groups import Price
from skillopt_airflow.core.run.budget import ModelPrice
from skillopt_airflow.models.metering import SAMPLE_TOKENS, price_of, table_date

AT = datetime(2026, 11, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a price was looked up on the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("openai-chat:gpt-5", (1.25, 10.0)),
        ("openai-responses:gpt-5", (1.25, 10.0)),
        ("azure:gpt-5", (1.25, 10.0)),
        ("anthropic:claude-sonnet-4-5", (3.0, 15.0)),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", (3.3, 16.5)),
    ],
)
def test_providers_list_prices(model: str, price: tuple[float, float]) -> None:
    found = price_of(model, {}, at=AT)
    assert found is not None
    assert (found.input, found.output) == price
    assert found.source == table_date(AT)


@pytest.mark.parametrize(
    ("model", "host"),
    [
        *((model, "") for model in ("openai-chat:Qwen/Qwen3-8B", "ollama:llama3", "nonsense", "", "openai-chat:")),
        # It has no price for answers.
        ("openai:text-embedding-3-small", ""),
        # A user's own server does not charge what the provider does.
        *(("openai-chat:gpt-oss-20b", host) for host in ("http://127.0.0.1:8000/v1", "https://proxy.example/v1")),
    ],
)
def test_nobody_knows_the_price_of_an_unknown_model(model: str, host: str) -> None:
    assert price_of(model, {}, host, at=AT) is None


def test_a_provider_that_speaks_the_dialect_of_another_is_known_by_its_address() -> None:
    found = price_of("openai-chat:llama-3.3-70b-versatile", {}, "https://api.groq.com/openai/v1", AT)
    assert found == price_of("groq:llama-3.3-70b-versatile", {}, at=AT)
    assert found is not None
    own = price_of("openai-chat:gpt-5", {}, "https://api.openai.com/v1", AT)
    assert own == price_of("openai-chat:gpt-5", {}, at=AT)


def test_overrides_win() -> None:
    own = {"openai-chat:gpt-5": Price(input=0, output=7.5), "openai-chat:mine": Price(input=1, output=2)}
    assert price_of("openai-chat:gpt-5", own) == ModelPrice(input=0.0, output=7.5, source="budget.prices")
    mine = price_of("openai-chat:mine", own, "http://127.0.0.1:8000/v1")
    assert mine == ModelPrice(input=1.0, output=2.0, source="budget.prices")


def test_the_price_is_what_the_table_itself_calculates_below_the_first_tier() -> None:
    usage = Usage(input_tokens=20_000, output_tokens=3_000)
    expected = calc_price(usage, "claude-sonnet-4-5", provider_id="anthropic", genai_request_timestamp=AT).total_price
    found = price_of("anthropic:claude-sonnet-4-5", {}, at=AT)
    assert found is not None
    assert found.usd(20_000, 3_000) == pytest.approx(float(expected))


def test_every_tier_of_the_table_begins_above_the_sample() -> None:
    models = [model for provider in providers for model in provider.models]
    prices = [
        price
        for model in models
        for price in ([model.prices] if isinstance(model.prices, TablePrices) else [c.prices for c in model.prices])
    ]
    starts = [
        tier.start
        for price in prices
        for value in (price.input_mtok, price.output_mtok)
        if isinstance(value, TieredPrices)
        for tier in value.tiers
    ]
    assert min(starts) > SAMPLE_TOKENS


def test_the_table_is_dated() -> None:
    name, _, newest = table_date(AT).partition(", newest price of ")
    assert name.startswith("genai-prices ")
    day = datetime.fromisoformat(newest).replace(tzinfo=UTC)
    assert AT - timedelta(days=365) < day <= AT
