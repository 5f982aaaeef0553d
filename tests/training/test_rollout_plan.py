from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import SandboxGroup, TrainConfig
from skillopt_airflow.core.types import Split
from skillopt_airflow.training.rollout_plan import (
    chunks_of,
    cut_contested,
    ids,
    largest_plan,
    parts_of,
    planned,
    store_plan,
)
from skillopt_airflow.training.workload import ChunkWorkload
from tests.training.in_process import Training

SIZES = st.integers(1, 500)
COUNTS = st.integers(0, 2000)
LANES = st.integers(1, 8)
TIMES = st.integers(1, 12)


def sandbox_of(size: int, lanes: int) -> SandboxGroup:
    return SandboxGroup(items_per_container=size, max_containers=lanes)


@given(COUNTS, SIZES, LANES, st.integers(1, 3), st.integers(1, 4))
def test_a_stage_is_cut_by_the_containers_that_run_at_the_same_time(
    count: int, size: int, lanes: int, skills: int, draws: int
) -> None:
    config = TrainConfig(sandbox=sandbox_of(size, lanes))
    keys, items = [str(number) for number in range(skills)], [str(number) for number in range(count)]
    chunks = chunks_of(config, "score", keys, Split.VAL, items, range(draws))
    for skill, draw in product(keys, range(draws)):
        mine = [chunk.item_ids for chunk in chunks if (chunk.skill, chunk.draw) == (skill, draw)]
        assert [item for part in mine for item in part] == items
        assert all(1 <= len(part) <= size for part in mine)
        assert not mine or max(map(len, mine)) - min(map(len, mine)) <= 1
    pairs, times = count * skills * draws, skills * draws
    round_of = times * (lanes // times) if times < lanes else lanes
    assert len(chunks) >= min(pairs, round_of)
    assert len(chunks) % round_of == 0 or len(chunks) == pairs


@given(st.integers(1, 2000), SIZES, LANES, TIMES)
def test_no_fewer_parts_would_do(count: int, size: int, lanes: int, times: int) -> None:
    found = parts_of(count, sandbox_of(size, lanes), times)
    fills = [parts for parts in range(1, count) if parts * size >= count]
    would_do = [parts for parts in fills if (parts % (lanes // times) if times < lanes else parts * times % lanes) == 0]
    assert found == (would_do[0] if would_do else count)


@pytest.mark.parametrize(
    ("count", "size", "lanes", "times", "parts"),
    [
        (40, 400, 4, 1, 4),
        (1400, 400, 4, 1, 4),
        (3, 400, 4, 1, 3),
        (1601, 400, 4, 1, 8),
        (200, 400, 4, 2, 2),
        (60, 400, 4, 3, 1),
        (60, 400, 4, 5, 4),
    ],
)
def test_examples_of_parts(count: int, size: int, lanes: int, times: int, parts: int) -> None:
    assert parts_of(count, sandbox_of(size, lanes), times) == parts


@given(COUNTS, SIZES, LANES, st.integers(1, 3), st.integers(1, 4))
def test_no_plan_of_so_many_skills_is_larger_than_the_largest(
    count: int, size: int, lanes: int, skills: int, draws: int
) -> None:
    config, items = TrainConfig(sandbox=sandbox_of(size, lanes)), [str(number) for number in range(count)]
    plans = [
        len(chunks_of(config, "score", ["k"] * number, Split.VAL, items, range(draws)))
        for number in range(1, skills + 1)
    ]
    assert largest_plan(count, config.sandbox, skills, draws) == max(plans)


@given(COUNTS, SIZES, LANES, TIMES)
def test_parts_of_a_contested_evaluation_at_the_same_time_advance_through_the_order_together(
    count: int, size: int, lanes: int, draws: int
) -> None:
    sandbox = sandbox_of(size, lanes)
    parts = cut_contested(range(count), sandbox, draws)
    assert len(parts) == parts_of(count, sandbox, draws)
    assert all(1 <= len(part) <= size for part in parts)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1
    together, begun = max(1, lanes // draws), 0
    for start in range(0, len(parts), together):
        group = parts[start : start + together]
        block = range(begun, begun + sum(map(len, group)))
        assert group == [list(block[place :: len(group)]) for place in range(len(group))]
        begun = block.stop
    assert begun == count


def test_a_plan_never_gets_shorter() -> None:
    training = Training.of(train__num_epochs=1)
    training.prepare()
    run = training.run
    moment, chunks = (
        run.timeline[1],
        chunks_of(run.config, "evaluate", [run.keys.skill(0)], Split.VAL, ids(run.items(Split.VAL))),
    )
    assert len(store_plan(run, moment, "evaluate", [])) == 0
    assert len(store_plan(run, moment, "evaluate", chunks)) == len(chunks) == 4
    refs = store_plan(run, moment, "evaluate", chunks[:1])
    assert [len(planned(run, ref)[1].item_ids) for ref in refs] == [6, 0, 0, 0]
    empty = ChunkWorkload(run, refs[2], "dag-run")
    assert (empty.items, empty.tally().coverage) == ([], 1.0)
    assert len(store_plan(run, moment, "evaluate", [])) == 4
