from hypothesis import given
from hypothesis import strategies as st
from scripted_optimizer import rollout

from skillopt_airflow.core.types import Rollout
from skillopt_airflow.optimizer.minibatches import minibatches

HARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=30)


@given(HARDS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_minibatches_do_not_depend_on_the_order_of_arrival(
    hards: list[float | None], size: int, random: object
) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hard in enumerate(hards)]
    cut = minibatches([rollouts], size, "42-step-1", False)
    random.shuffle(rollouts)  # type: ignore[attr-defined]
    assert minibatches([rollouts], size, "42-step-1", False) == cut


def slices_of(hards: list[list[float | None]]) -> list[list[Rollout]]:
    return [
        [rollout(f"s{number}-{index:02d}", hard) for index, hard in enumerate(part)]
        for number, part in enumerate(hards)
    ]


@given(st.lists(HARDS, max_size=4), st.integers(1, 9))
def test_slices_are_cut_apart_and_indices_run_on(hards: list[list[float | None]], size: int) -> None:
    slices = slices_of(hards)
    cut = minibatches(slices, size, "s", False)
    for source_type in ("failure", "success"):
        indices = [batch.index for batch in cut if batch.source_type == source_type]
        assert indices == [*range(len(indices))]
    for batch in cut:
        assert len({part.trajectory.item_id.split("-")[0] for part in batch.rollouts}) == 1
    for count in range(len(slices)):
        earlier = minibatches(slices[:count], size, "s", False)
        assert cut[: len(earlier)] == earlier


@given(st.lists(HARDS, max_size=3), st.integers(1, 9))
def test_failures_only(hards: list[list[float | None]], size: int) -> None:
    slices = slices_of(hards)
    both = minibatches(slices, size, "s", False)
    assert minibatches(slices, size, "s", True) == [batch for batch in both if batch.source_type == "failure"]


def test_one_slice_is_cut_as_ever() -> None:
    rollouts = [rollout(f"i{index}", float(index % 3 == 0)) for index in range(10)]
    assert [
        (batch.name, [part.trajectory.item_id for part in batch.rollouts])
        for batch in minibatches([rollouts], 4, "42-step-1", False)
    ] == [("failure-0", ["i4", "i8", "i5", "i2"]), ("failure-1", ["i1", "i7"]), ("success-0", ["i6", "i3", "i0", "i9"])]


TRIES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=4), max_size=12)


@given(TRIES, st.integers(1, 5))
def test_the_tries_of_an_item_stay_together_the_lowest_score_first(tries: list[list[float | None]], size: int) -> None:
    rollouts = [rollout(f"i{index:02d}", hard) for index, hards in enumerate(tries) for hard in hards]
    cut = minibatches([rollouts], size, "s", False)
    found = {of_item[0].trajectory.item_id: (batch, of_item) for batch in cut for of_item in batch.items}
    assert len(found) == sum(len(batch.items) for batch in cut)
    assert len({batch.name for batch in cut}) == len(cut)
    assert all(len(batch.items) <= size for batch in cut)
    scored = {f"i{index:02d}": [hard for hard in hards if hard is not None] for index, hards in enumerate(tries)}
    assert found.keys() == {item_id for item_id, hards in scored.items() if hards}
    for item_id, (batch, of_item) in found.items():
        hards = [one.score.hard for one in of_item if one.score]
        assert hards == sorted(scored[item_id])
        assert batch.source_type == ("failure" if sum(hards) < len(hards) else "success")
        assert batch.repeats == any(len(others) > 1 for others in batch.items)


def test_items_with_several_tries_are_grouped_like_those_with_one() -> None:
    once = [rollout(f"i{index:02d}", float(index % 3 == 0)) for index in range(20)]
    one, two = (minibatches([rollouts], 4, "s", False) for rollouts in (once, [*once, *once]))
    names = [
        [(batch.name, [tries[0].trajectory.item_id for tries in batch.items]) for batch in cut] for cut in (one, two)
    ]
    assert names[0] == names[1]
