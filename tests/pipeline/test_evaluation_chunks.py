from hypothesis import given
from hypothesis import strategies as st

from include.pipeline.evaluation import Chunk, chunks

SIZES = st.integers(1, 50)


@given(st.integers(0, 2000), SIZES, st.integers(0, 9), st.integers(0, 9))
def test_chunks_cover_all_items_once_evenly_and_as_few_as_possible(
    count: int, size: int, version: int, first_index: int
) -> None:
    cut = [Chunk.model_validate(chunk) for chunk in chunks(count, size, version, first_index)]
    assert [item for chunk in cut for item in range(chunk.start, chunk.stop)] == list(range(count))
    assert len(cut) == -(-count // size)
    lengths = {chunk.stop - chunk.start for chunk in cut}
    assert all(1 <= length <= size for length in lengths)
    assert not lengths or max(lengths) - min(lengths) <= 1
    assert [chunk.index for chunk in cut] == list(range(first_index, first_index + len(cut)))
    assert {chunk.version for chunk in cut} <= {version}


def test_no_items_no_chunks() -> None:
    assert chunks(0, 20) == []
