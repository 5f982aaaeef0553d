from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.http_failures import (
    ADVICE,
    FIRST_ITEMS,
    UNREADABLE,
    advice,
    hopeless,
    lasting_error,
    may_pass,
)
from skillopt_airflow.core.types import Status, Trajectory

KINDS = st.sampled_from(["", "401", "404", UNREADABLE])


def failed(number: int, kind: str) -> Trajectory:
    return Trajectory(item_id=f"i-{number}", status=Status.MODEL_ERROR, error=f"no {number}", lasting_error=kind)


def test_every_lasting_error_has_its_advice() -> None:
    assert not [status for status in range(600) if may_pass(status) and lasting_error(status)]
    assert all(map(advice, range(600)))
    assert {status for status in range(600) if lasting_error(status)} == {400, 401, 402, 403, 404, 405, 422}
    assert {int(lasting_error(status)) for status in ADVICE} == set(ADVICE)
    assert lasting_error(None) == lasting_error(200) == ""
    assert "host" in advice(0)


@given(kinds=st.lists(KINDS, max_size=12), items=st.integers(1, 40))
def test_a_chunk_is_given_up_exactly_if_its_first_items_failed_alike(kinds: list[str], items: int) -> None:
    wanted = min(FIRST_ITEMS, items)
    looked_at = kinds[:wanted]
    alike = len(looked_at) == wanted and len(set(looked_at)) == 1 and looked_at[0] != ""
    assert (hopeless([failed(n, kind) for n, kind in enumerate(kinds)], items) is not None) is alike


def test_the_reason_names_one_item() -> None:
    for items, count in ((200, 8), (3, 3)):
        reason = hopeless([failed(n, "401") for n in range(min(items, 20))], items)
        assert str(reason) == f"{count} of {count} items: model_error: no 0 (for example item i-0)"
