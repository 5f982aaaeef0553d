import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.resource_groups import ModelGroup, SandboxGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.rollouts.rollout_plan import (
    CALLS_PER_CONTAINER,
    MAX_CHUNKS,
    chunks_of,
    find_chunk,
    ids,
    largest_plan,
    parts_of,
    store_plan,
)
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.step.candidate import cut_contested
from tests.training.in_process import Training

SIZES = st.integers(1, 500)
COUNTS = st.integers(0, 2000)
LANES = st.integers(1, 8)
TIMES = st.integers(1, 12)
CALLS = st.integers(1, 600)


def config_of(size: int, containers: int, calls: int = 32) -> TrainConfig:
    sandbox = SandboxGroup(items_per_container=size, max_containers=containers)
    return TrainConfig(sandbox=sandbox, model=ModelGroup(concurrency=calls))


def room(size: int, count: int, times: int) -> int:
    """Return the most items of a chunk: those that may share a container, or more where Airflow maps no more tasks."""
    return max(size, math.ceil(count / (MAX_CHUNKS // times)))


@given(COUNTS, SIZES, LANES, st.integers(1, 3), st.integers(1, 4), CALLS)
def test_a_stage_is_cut_by_its_model_calls_in_flight_and_by_the_items_that_may_share_a_container(
    count: int, size: int, lanes: int, skills: int, samples: int, calls: int
) -> None:
    config = config_of(size, lanes, calls)
    most = room(size, count, skills * samples)
    keys, items = [str(number) for number in range(skills)], [str(number) for number in range(count)]
    chunks = chunks_of(config, "score", keys, Split.VAL, items, range(samples))
    assert len(chunks) <= MAX_CHUNKS
    for skill, sample in product(keys, range(samples)):
        mine = [chunk.item_ids for chunk in chunks if (chunk.skill, chunk.sample) == (skill, sample)]
        assert [item for part in mine for item in part] == items
        assert all(1 <= len(part) <= most for part in mine)
        assert not mine or max(map(len, mine)) - min(map(len, mine)) <= 1


@given(st.integers(1, 2000), SIZES, LANES, TIMES, CALLS)
def test_there_are_no_more_parts_than_calls_or_isolation_ask_for_unless_a_container_would_be_idle(
    count: int, size: int, lanes: int, times: int, calls: int
) -> None:
    parts = parts_of(count, config_of(size, lanes, calls), times)
    assert 1 <= parts <= min(count, MAX_CHUNKS // times)
    carriers = math.ceil(min(count * times, calls) / CALLS_PER_CONTAINER)
    if parts == MAX_CHUNKS // times:
        assert (parts - 1) * size < count
    elif parts * times <= lanes:
        assert (parts - 1) * size < count or parts * times <= carriers
        assert (parts + 1) * times > min(lanes, carriers)
    else:
        round_of = times * (lanes // times) if times < lanes else math.lcm(lanes, times)
        assert parts * times % round_of == 0 or parts == count
        assert parts == count or parts * times == round_of or (parts - round_of // times) * size < count


@pytest.mark.parametrize(
    ("count", "size", "lanes", "times", "calls", "parts"),
    [
        (40, 400, 4, 1, 32, 1),
        (401, 400, 4, 1, 32, 2),
        (1601, 400, 4, 1, 32, 8),
        (100_000, 400, 4, 1, 32, 252),
        (200, 400, 4, 1, 256, 4),
        (200, 400, 4, 1, 100, 2),
        (40, 10, 4, 1, 32, 4),
        (60, 400, 4, 3, 32, 1),
        (60, 400, 4, 5, 32, 4),
        (3, 400, 4, 1, 32, 1),
    ],
)
def test_examples_of_parts(count: int, size: int, lanes: int, times: int, calls: int, parts: int) -> None:
    assert parts_of(count, config_of(size, lanes, calls), times) == parts


@given(COUNTS, SIZES, LANES, st.integers(1, 3), st.integers(1, 4), CALLS)
def test_no_plan_of_so_many_skills_is_larger_than_the_largest(
    count: int, size: int, lanes: int, skills: int, samples: int, calls: int
) -> None:
    config, items = config_of(size, lanes, calls), [str(number) for number in range(count)]
    plans = [
        len(chunks_of(config, "score", ["k"] * number, Split.VAL, items, range(samples)))
        for number in range(1, skills + 1)
    ]
    assert largest_plan(count, config, skills, samples) == max(plans)


@given(COUNTS, SIZES, LANES, TIMES)
def test_parts_of_a_contested_evaluation_at_the_same_time_advance_through_the_order_together(
    count: int, size: int, lanes: int, samples: int
) -> None:
    config, most = config_of(size, lanes), room(size, count, samples)
    parts = cut_contested(range(count), config, samples)
    assert len(parts) == parts_of(count, config, samples)
    assert all(1 <= len(part) <= most for part in parts)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1
    together, begun = max(1, lanes // samples), 0
    for start in range(0, len(parts), together):
        group = parts[start : start + together]
        block = range(begun, begun + sum(map(len, group)))
        assert group == [list(block[place :: len(group)]) for place in range(len(group))]
        begun = block.stop
    assert begun == count


def test_a_plan_never_gets_shorter() -> None:
    training = Training.of(train__num_epochs=1, sandbox__items_per_container=6)
    training.prepare()
    run = training.run
    moment, items = run.timeline[1], ids(run.items(Split.VAL))
    chunks = chunks_of(run.config, "evaluate", [run.keys.skill(0)], Split.VAL, items)
    assert len(store_plan(run, moment, "evaluate", [])) == 0
    assert len(store_plan(run, moment, "evaluate", chunks)) == len(chunks) == 4
    refs = store_plan(run, moment, "evaluate", chunks[:1])
    assert [len(find_chunk(run, ref)[1].item_ids) for ref in refs] == [6, 0, 0, 0]
    empty = ChunkWorkload(run, refs[2], "dag-run")
    assert (empty.items, empty.tally().coverage) == ([], 1.0)
    assert len(store_plan(run, moment, "evaluate", [])) == 4
