from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import SandboxGroup
from skillopt_airflow.core.types import Split
from skillopt_airflow.training.rollout_plan import (
    chunks_of,
    cut,
    cut_contested,
    ids,
    planned,
    store_plan,
)
from skillopt_airflow.training.workload import ChunkWorkload
from tests.training.in_process import Training

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
    parts = cut_contested(range(count), one_block(size), draws=1)
    assert sorted(item for part in parts for item in part) == list(range(count))
    assert len(parts) == -(-count // size)
    for rank in range(max(map(len, parts), default=0)):
        begun = {part[rank] for part in parts if rank < len(part)}
        assert begun <= set(range(rank * len(parts), (rank + 1) * len(parts)))


@given(COUNTS, SIZES, st.integers(1, 8), st.integers(1, 5))
def test_blocks_are_what_all_containers_take_with_every_draw(
    count: int, size: int, containers: int, draws: int
) -> None:
    sandbox = SandboxGroup(items_per_container=size, max_containers=containers)
    parts = cut_contested(range(count), sandbox, draws)
    width = max(1, size * containers // draws)
    blocks = [range(start, min(start + width, count)) for start in range(0, count, width)]
    assert parts == [part for block in blocks for part in cut_contested(block, one_block(size), draws=1)]


def one_block(size: int) -> SandboxGroup:
    return SandboxGroup(items_per_container=size, max_containers=10_000)


def test_no_items_no_chunks() -> None:
    assert cut([], 20) == cut_contested([], one_block(20), draws=1) == []


def test_a_plan_never_gets_shorter() -> None:
    training = Training.of(train__num_epochs=1)
    training.prepare()
    run = training.run
    moment, chunks = (
        run.timeline[1],
        chunks_of(run.config, "evaluate", run.keys.skill(0), Split.VAL, ids(run.items(Split.VAL))),
    )
    assert len(store_plan(run, moment, "evaluate", [])) == 0
    assert len(store_plan(run, moment, "evaluate", chunks)) == len(chunks) == 3
    refs = store_plan(run, moment, "evaluate", chunks[:1])
    assert [len(planned(run, ref)[1].item_ids) for ref in refs] == [8, 0, 0]
    empty = ChunkWorkload(run, refs[2], "dag-run")
    assert (empty.items, empty.tally().coverage) == ([], 1.0)
    assert len(store_plan(run, moment, "evaluate", [])) == 3
