from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.rate_limit import CLAIM_SECONDS, START, RateLimit

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


def room(limit: RateLimit, gateway: str, now: float) -> bool:
    return limit.has_room(gateway, MOST, now, gives_way=gateway == "patient")


def test_who_gives_way_has_one_try_while_others_want_slots_and_all_that_are_left_when_they_do_not():
    limit = RateLimit(limit=8).wanted("steps", 10.0, gives_way=False).taken("steps", 1)
    assert room(limit, "patient", 10.1)
    limit = limit.taken("patient", 1)
    assert not room(limit, "patient", 10.1)
    assert room(limit, "steps", 10.1)
    assert room(limit, "patient", 10.0 + CLAIM_SECONDS)
    assert not room(limit.taken("patient", 6), "patient", 10.0 + CLAIM_SECONDS)


def test_a_slot_is_left_to_who_gives_way_and_has_none_until_it_got_one():
    full = RateLimit(limit=8).taken("steps", 8)
    assert full.taken("patient", 1).wanted("patient", 10.0, gives_way=True).owed_until == 0
    owed = full.wanted("patient", 10.0, gives_way=True).taken("steps", -1)
    assert not room(owed, "steps", 10.1)
    assert room(owed, "patient", 10.1)
    served = owed.paid().taken("patient", 1).taken("steps", -1)
    assert room(served, "steps", 10.1)
    assert room(owed, "steps", 10.0 + CLAIM_SECONDS)


def test_the_only_slot_of_a_server_is_not_left_free():
    owed = RateLimit(limit=1).wanted("patient", 10.0, gives_way=True)
    assert room(owed, "steps", 10.1)


def test_a_try_that_waits_renews_its_claim_before_it_ends_and_not_at_each_look():
    first = RateLimit().wanted("steps", 10.0, gives_way=False)
    assert first.wanted("steps", 10.1, gives_way=False) is first
    assert first.wanted("steps", 10.4, gives_way=False).claimed_until == 10.4 + CLAIM_SECONDS
