from datetime import UTC, datetime

import pytest

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.item_scores import LOST, WON, Evaluation
from skillopt_airflow.core.looks import Look, Question
from skillopt_airflow.core.run_gates import (
    check_groups,
    decide_publication,
    deciding,
    gates_of,
    level_at,
    promising,
    publishing_rules,
    smallest_gains,
)
from skillopt_airflow.core.types import ItemRef, Split


def config(**knobs: object) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


def test_a_training_has_two_gates_unless_candidates_are_taken_without_one() -> None:
    chosen = config(evaluation__gate_policy="exact_paired", publishing__gate_alpha=0.01, publishing__draws=3)
    candidates, publishing = gates_of(chosen)
    assert (candidates.rules, candidates.fewest) == (chosen.evaluation, 5)
    assert (publishing.rules.gate_policy, publishing.rules.draws, publishing.fewest) == ("exact_paired", 3, 7)
    ungated = config(evaluation__use_gate=False)
    assert [gate.knob for gate in gates_of(ungated)] == ["publishing.gate_policy"]
    assert publishing_rules(ungated.evaluation, ungated.publishing).use_gate


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
        candidate="c", rival="r", draws=1, metric="hard", policy="exact_paired", alpha=0.08, settings=""
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
    decide, promise = deciding(Split.TEST, refs), promising(refs)
    assert sorted([*decide, *promise]) == sorted(refs)
    assert 60 <= len(promise) <= 140
    assert not {one.group for one in decide} & {one.group for one in promise} - {""}
    assert deciding(Split.PUBLISH, refs) == refs


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
    assert "publishing.gate_policy = exact_paired, 40 items of the test split, 1 draw" in str(publishing)
    assert f"{100 * publishing.gain:.1f} points" in str(publishing)
    found = smallest_gains(config(publishing__draws=2), {Split.VAL: [], Split.TEST: [*"aabbccdd"]})[1]
    assert "8 items of the test split in 4 groups, 2 draws" in str(found)
    assert found.gain is None
    tripled = smallest_gains(config(publishing__draws=3), groups)[1]
    assert tripled.alike == publishing.gain
    assert "if all draws of an item are alike" in str(tripled)
