from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.rate_limit import START, RateLimit

MOST = 4 * START


def after(limit: RateLimit, answers: int) -> RateLimit:
    for _ in range(answers):
        limit = limit.answered(limit.cuts, MOST)
    return limit


def test_a_round_of_answers_doubles_the_limit_until_the_first_overload():
    first = RateLimit()
    assert first.limit == START
    second = after(first, START)
    assert second.limit == 2 * START
    assert after(second, 2 * START).limit == MOST
    assert after(second, 1000).limit == MOST


def test_after_an_overload_a_round_of_answers_adds_about_one():
    cut = after(RateLimit(), START).overloaded(0, 0.0, None)
    assert cut.limit == START
    grown = after(cut, START)
    assert START + 0.9 < grown.limit <= START + 1


def test_tries_of_one_round_cut_only_once():
    limit = RateLimit(limit=32)
    for _ in range(5):
        limit = limit.overloaded(0, 0.0, None)
    assert (limit.limit, limit.cuts) == (16, 1)
    assert limit.overloaded(1, 0.0, None).limit == 8


def test_answers_from_before_the_cut_do_not_raise_the_new_limit():
    cut = RateLimit().overloaded(0, 0.0, None)
    assert cut.answered(0, MOST) == cut


def test_the_longest_pause_that_was_asked_for_holds():
    limit = RateLimit().overloaded(0, 100.0, 30.0).overloaded(0, 101.0, 5.0)
    assert limit.not_before == 130.0
    assert (limit.wait(120.0), limit.wait(131.0)) == (10.0, 0.0)


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.none() | st.floats(0, 100), st.floats(0, 10)), max_size=60
)


@given(STEPS)
def test_the_limit_stays_between_one_and_the_most_and_a_pause_is_never_shortened(steps):
    limit, now = RateLimit(), 0.0
    for good, back, pause, passed in steps:
        before, now = limit, now + passed
        began = max(0, limit.cuts - back)
        limit = limit.answered(began, MOST) if good else limit.overloaded(began, now, pause)
        assert 1 <= limit.limit <= MOST
        assert limit.not_before >= before.not_before
        if good:
            assert limit.limit >= before.limit
        else:
            assert limit.limit <= before.limit
            assert limit.wait(now) >= (pause or 0.0) - 1e-6
    assert RateLimit.model_validate_json(limit.model_dump_json()) == limit
