"""The choice among a step's candidates: the best mean, then the shorter text, then the first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.contenders import Contender, Standing, at_level_of, choose, rules_among
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.run_gates import gates_of
from skillopt_airflow.core.training_groups import EvaluationGroup

CURRENT = 0.5


def contender(
    number: int, score: float | None = None, characters: int = 100, standing: Standing = "measured", **more: object
) -> Contender:
    fields = {"proposal": number, "sha256": str(number), "characters": characters, "standing": standing, "score": score}
    return Contender.model_validate(fields | {"current": CURRENT} | more)


def rejected(number: int, bound: float) -> Contender:
    return contender(number, standing="rejected early", bound=bound)


def equal(number: int) -> Contender:
    return contender(number, standing="nothing new", reason="equal to proposal 1")


def outcomes(*contenders: Contender) -> list[str]:
    return ["chosen" if one.chosen else one.reason for one in choose(contenders)]


def test_the_best_mean_the_shorter_text_or_the_first_is_chosen_and_the_others_are_told_why_not() -> None:
    assert outcomes(contender(1, 0.5), contender(2, 0.75), equal(3)) == [
        "worse than proposal 2",
        "chosen",
        "equal to proposal 1",
    ]
    assert outcomes(contender(1, 0.1 + 0.2, 120), contender(2, 0.3, 100), contender(3, 0.3, 100)) == [
        "as good as proposal 2, and longer than it",
        "chosen",
        "as good as proposal 2, and as long as it",
    ]


def test_what_was_measured_whole_goes_before_what_was_not() -> None:
    few = contender(2, standing="too few scores")
    assert outcomes(rejected(1, 0.5), few, contender(3, 0.4)) == ["rejected early", "too few scores", "chosen"]
    assert outcomes(few, rejected(3, 0.1)) == ["too few scores", "chosen"]
    assert outcomes(rejected(1, 0.45), rejected(2, 0.5)) == ["worse than proposal 2", "chosen"]
    assert [one.chosen for one in choose([equal(1), equal(2)])] == [True, False]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=6), st.randoms())
def test_the_choice_depends_on_no_order(scores: list[tuple[int, int]], random: object) -> None:
    contenders = [contender(number, score / 20, size) for number, (score, size) in enumerate(scores, start=1)]
    [best] = [one for one in choose(contenders) if one.chosen]
    assert best.score == max(score for score, _ in scores) / 20
    random.shuffle(contenders)  # type: ignore[attr-defined]
    assert [one.proposal for one in choose(contenders) if one.chosen] == [best.proposal]


def test_the_level_is_divided_by_the_number_of_different_candidates() -> None:
    rules = EvaluationGroup(gate_policy="exact_paired", gate_alpha=0.06)
    assert rules_among(rules, ()) == rules
    assert rules_among(rules, [equal(1), equal(2)]) == rules
    assert rules_among(rules, [contender(1, 1.0), equal(2), rejected(3, 0.5)]).gate_alpha == 0.03
    assert at_level_of(rules, 3).gate_alpha == pytest.approx(0.02)


def test_before_the_first_call_the_strictest_level_counts() -> None:
    layers = {"evaluation": {"gate_policy": "exact_paired"}}
    one, four = (TrainConfig.from_layers(layers, {"train": {"proposals": number}}) for number in (1, 4))
    assert [gates_of(config)[0].fewest for config in (one, four)] == [5, 7]
    assert gates_of(one)[1] == gates_of(four)[1]


def test_several_proposals_are_not_screened() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.screen = batch .*train\.proposals = 2"):
        TrainConfig.from_layers({"train": {"proposals": 2}, "evaluation": {"screen": "batch"}})
