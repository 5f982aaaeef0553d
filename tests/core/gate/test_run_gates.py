import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate.item_scores import LOST, WON, Evaluation
from skillopt_airflow.core.gate.policies import sign_flip_test
from skillopt_airflow.core.gate.run_gates import (
    Look,
    Question,
    check_groups,
    decide_publication,
    deciding_items,
    gates_of,
    held_out_items,
    item_mark,
    level_at,
    level_of,
    next_number,
    publishing_rules,
    smallest_gain,
    smallest_gains,
)
from skillopt_airflow.core.values.types import ALL_DATA_SPLITS, DATA_SPLITS, Item, ItemRef, Split, items_fingerprint


def config(**knobs: object) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


def test_a_training_has_two_gates_unless_candidates_are_taken_without_one() -> None:
    chosen = config(evaluation__gate_policy="exact_paired", publishing__gate_alpha=0.01, publishing__samples=3)
    candidates, publishing = gates_of(chosen, DATA_SPLITS)
    assert (candidates.rules, candidates.fewest) == (chosen.evaluation, 5)
    assert (publishing.rules.gate_policy, publishing.rules.samples, publishing.fewest) == ("exact_paired", 3, 7)
    ungated = config(evaluation__use_gate=False)
    assert [gate.knob for gate in gates_of(ungated, DATA_SPLITS)] == ["publishing.gate_policy"]
    assert publishing_rules(ungated.evaluation, ungated.publishing).use_gate


def test_a_split_publish_decides_what_is_published_if_the_data_has_one() -> None:
    for splits, decides in ((DATA_SPLITS, Split.TEST), (ALL_DATA_SPLITS, Split.PUBLISH)):
        assert [gate.split for gate in gates_of(config(), splits)] == [Split.VAL, decides]


def test_a_gate_that_no_result_could_pass_is_refused() -> None:
    groups = {Split.TEST: [f"paper {place % 4}" for place in range(40)], Split.VAL: [""] * 40}
    with pytest.raises(ConfigError, match=r"^publishing\.gate_policy = exact_paired .* test split .*4 groups.* 5"):
        check_groups(config(), groups)
    check_groups(config(publishing__gate_alpha=0.08), groups)
    check_groups(config(), groups | {Split.TEST: ["a", "a", "", "", "", "", ""]})


@pytest.mark.parametrize(("number", "action"), [(1, "accept_new_best"), (2, "underpowered")])
def test_a_later_look_at_the_same_items_takes_more_to_publish(number: int, action: str) -> None:
    knobs = config(publishing__gate_alpha=0.08)
    question = Question(
        candidate="c", rival="r", samples=1, metric="hard", policy="exact_paired", alpha=0.08, settings=""
    )
    look = Look(
        number=number,
        split=Split.TEST,
        items=4,
        marks=(),
        question=question,
        run="run",
        publication="run",
        entered=datetime(2026, 11, 1, tzinfo=UTC),
    )
    won, lost = (Evaluation(scores={f"i{place}": score for place in range(4)}) for score in (WON, LOST))
    decision = decide_publication(won, lost, knobs.evaluation, knobs.publishing, look)
    assert decision.action == action
    assert str(look) in decision.reason
    assert level_at(look) == look.level
    assert level_at(look.model_copy(update={"question": question.model_copy(update={"policy": "strict"})})) is None


def test_the_promise_comes_from_items_that_decide_nothing() -> None:
    refs = [ItemRef(f"i{place}", "", group=f"g{place // 5}" if place < 200 else "") for place in range(400)]
    decide, promise = deciding_items(Split.TEST, refs), held_out_items(refs)
    assert sorted([*decide, *promise]) == sorted(refs)
    assert 60 <= len(promise) <= 140
    assert not {one.group for one in decide} & {one.group for one in promise} - {""}
    assert deciding_items(Split.PUBLISH, refs) == refs


def test_what_each_gate_can_find_is_told_for_the_look_that_it_will_be() -> None:
    groups = {Split.VAL: [""] * 40, Split.TEST: [""] * 40}
    candidates, publishing = smallest_gains(config(), groups)
    fifth = smallest_gains(config(), groups, 5)[1]
    assert candidates.gain is not None
    assert publishing.gain is not None
    assert fifth.gain is not None
    assert candidates.gain < publishing.gain < 0.4
    assert fifth.gain > publishing.gain + 0.1
    assert "look 5" in str(fifth)
    assert "publishing.gate_policy = exact_paired, 40 items of the test split, 1 sample" in str(publishing)
    assert f"{100 * publishing.gain:.1f} points" in str(publishing)
    found = smallest_gains(config(publishing__samples=2), {Split.VAL: [], Split.TEST: [*"aabbccdd"]})[1]
    assert "8 items of the test split in 4 groups, 2 samples" in str(found)
    assert found.gain is None
    tripled = smallest_gains(config(publishing__samples=3), groups)[1]
    assert tripled.alike == publishing.gain
    assert "if all samples of an item are alike" in str(tripled)


RULES = EvaluationGroup(gate_policy="exact_paired")
TRIPLED = RULES.model_copy(update={"samples": 3})


def found(gain: float, items: int, samples: int, different: int) -> float:
    """The share of candidates with the gain that pass; of an item's samples, so many are different ones."""
    random, accepted, trials = np.random.default_rng(5), 0, 400
    for _ in range(trials):
        mine, theirs = (random.binomial(different, chance, items) for chance in ((1 + gain) / 2, (1 - gain) / 2))
        changes = (mine - theirs) / different
        accepted += changes.sum() > 0 and sign_flip_test(changes.tolist()) <= RULES.gate_alpha
    return accepted / trials


@pytest.mark.nightly
@pytest.mark.parametrize("items", [40, 200, 1000])
@pytest.mark.parametrize("alike", [False, True])
def test_the_gain_is_found_in_four_of_five_cases(items: int, alike: bool) -> None:
    gain = smallest_gain(TRIPLED, (1,) * items, alike)
    assert gain is not None
    assert found(gain, items, 3, 1 if alike else 3) == pytest.approx(0.8, abs=0.06)


def test_more_items_and_more_samples_find_smaller_gains() -> None:
    gains = [smallest_gain(each, (1,) * items) or 1.0 for items in (17, 100) for each in (RULES, TRIPLED)]
    single, averaged = gains[::2], gains[1::2]
    assert single == sorted(single, reverse=True)
    assert all(many < one for one, many in zip(single, averaged, strict=True))
    # By the normal approximation (1.645 + 0.842) * sqrt(1/2 / items).
    assert single[1] == pytest.approx(0.176, abs=0.03)
    # Draws that are all alike tell no more than one.
    assert smallest_gain(TRIPLED, (1,) * 100, alike=True) == single[1]


def test_where_no_result_could_pass_no_gain_is_found() -> None:
    assert smallest_gain(RULES, (1,) * 4) is None
    assert smallest_gain(RULES, ()) is None
    assert smallest_gain(RULES, (10,) * 4) is None
    assert smallest_gain(RULES, (1,) * 5) is not None


@pytest.mark.nightly
def test_items_of_a_group_tell_less_than_independent_ones() -> None:
    few, many = (20,) * 30, (1,) * 400
    gain = smallest_gain(RULES, few + many)
    # Of as many items in groups of one it would be 0.06; of the large groups alone 0.37.
    assert gain is not None
    assert 0.1 < gain < 0.35
    # Items that share a toss find what as many items as groups find.
    assert smallest_gain(RULES, (50,) * 20) == smallest_gain(RULES, (1,) * 20)


@given(st.floats(1e-4, 0.49), st.integers(1, 400))
def test_all_looks_together_keep_the_level(alpha: float, looks: int) -> None:
    levels = [level_of(number, alpha) for number in range(1, looks + 1)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == pytest.approx(0.8 * alpha)
    # What is left for later looks is what the sum of 1 / k^2 over all but the first lacks: 1 / n to 1 / (n - 1).
    left = alpha / 5 * 6 / math.pi**2
    lowest = alpha - left / (looks - 1) if looks > 1 else 0.8 * alpha
    assert lowest <= math.fsum(levels) <= alpha - left / looks + 1e-12


def test_equal_items_have_one_fingerprint_in_any_order() -> None:
    assert items_fingerprint(["b", "a"]) == items_fingerprint(iter(["a", "b"])) != items_fingerprint(["a"])


def asked(name: str, **public: Any) -> Item:
    return Item(id=name, public=public, reference={"answers": [name]})


def test_an_item_has_one_mark_whatever_its_id_and_its_file_look_like() -> None:
    mark = item_mark(asked("a", question="Who wrote Faust?", year=1808))
    assert mark == item_mark(asked("b", year="1808", question="who  wrote\nFaust", id="b"))
    assert mark != item_mark(asked("a", question="Who wrote Faust II?", year=1808))
    assert item_mark(asked("c", half="\ud83d"))


def test_a_look_has_the_number_of_the_item_that_was_looked_at_most() -> None:
    looks = [a_look(number=place + 1, marks=marks) for place, marks in enumerate([("a", "b"), ("b", "c"), ("d",)])]
    numbers = [next_number(looks, marks) for marks in (("a",), ("b", "x"), ("c", "d"), ("x",), ())]
    assert numbers == [2, 3, 2, 1, 1]


def a_look(**fields: Any) -> Look:
    question = Question(
        candidate="c", rival="r", samples=1, metric="hard", policy="exact_paired", alpha=0.05, settings="s"
    )
    more = {"run": "r", "publication": "p", "entered": datetime(2026, 11, 20, tzinfo=UTC)}
    rest = {"split": Split.TEST, "items": 1400, "question": question}
    return Look.model_validate(rest | more | fields)


def test_a_look_says_which_it_is() -> None:
    look = a_look(number=2, marks=())
    assert str(look) == "look 2 at these 1,400 items"
    assert look.level == pytest.approx(0.05 / 5 * 6 / math.pi**2)
