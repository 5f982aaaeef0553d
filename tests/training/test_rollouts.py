from hypothesis import given
from hypothesis import strategies as st

from include.training.rollouts import cut, striped

SIZES = st.integers(1, 50)
COUNTS = st.integers(0, 2000)


@given(COUNTS, SIZES)
def test_chunks_cover_all_items_once_evenly_and_as_few_as_possible(count: int, size: int) -> None:
    parts = cut(range(count), size)
    assert [item for part in parts for item in part] == list(range(count))
    assert len(parts) == -(-count // size)
    assert all(1 <= len(part) <= size for part in parts)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


@given(COUNTS, SIZES)
def test_stripes_advance_through_the_order_together(count: int, size: int) -> None:
    parts = striped(range(count), size)
    assert sorted(item for part in parts for item in part) == list(range(count))
    assert len(parts) == -(-count // size)
    for rank in range(max(map(len, parts), default=0)):
        begun = {part[rank] for part in parts if rank < len(part)}
        assert begun <= set(range(rank * len(parts), (rank + 1) * len(parts)))


def test_no_items_no_chunks() -> None:
    assert cut([], 20) == striped([], 20) == []
