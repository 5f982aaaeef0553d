from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.remaining_budget import RemainingBudget

AMOUNTS = st.builds(
    RemainingBudget,
    calls=st.none() | st.integers(-5, 100),
    tokens=st.none() | st.integers(-5, 100),
    usd=st.none() | st.floats(-1, 10),
    input_price=st.just(2.0),
    output_price=st.just(10.0),
)


def test_each_limit_has_its_name():
    assert RemainingBudget().minus(calls=10**9, prompt_tokens=10**12).used_up() == ""
    assert RemainingBudget(calls=0).used_up() == "budget.max_calls"
    assert RemainingBudget(calls=1, tokens=-3).used_up() == "budget.max_tokens"
    assert RemainingBudget(tokens=1, usd=0.0).used_up() == "budget.max_usd"


def test_tokens_cost_by_the_million():
    left = RemainingBudget(usd=1.0, tokens=3_000_000, input_price=0.25, output_price=2.0)
    assert left.minus(prompt_tokens=1_000_000, completion_tokens=100_000).usd == 1.0 - 0.25 - 0.2
    assert left.minus(prompt_tokens=1_000_000, completion_tokens=100_000).tokens == 1_900_000


def test_any_limit_is_one():
    assert not RemainingBudget(input_price=1.0).is_limited
    assert all(RemainingBudget(**{name: 0}).is_limited for name in ("calls", "tokens", "usd"))


@given(AMOUNTS, st.integers(0, 9), st.integers(0, 99), st.integers(0, 99))
def test_spending_never_brings_anything_back(left, calls, prompt, completion):
    after = left.minus(calls=calls, prompt_tokens=prompt, completion_tokens=completion)
    if left.used_up():
        assert after.used_up()
    assert RemainingBudget.model_validate_json(after.model_dump_json()) == after
