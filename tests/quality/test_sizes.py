"""What the configuration asks of the splits' sizes."""

from typing import Any

import pytest

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate_policies import POLICIES, Action, evidence_of
from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Split
from skillopt_airflow.quality.sizes import evaluation_needs, training_needs


def rules(**knobs: Any) -> EvaluationGroup:
    return EvaluationGroup(**knobs)


def test_limits_are_numbers_of_items_that_must_be_there() -> None:
    needs = {need.split: (need.rows, need.reason) for need in evaluation_needs(rules(val_limit=24, test_limit=100))}
    assert needs == {
        Split.VAL: (24, "for evaluation.val_limit = 24"),
        Split.TEST: (100, "for evaluation.test_limit = 100"),
    }
    assert list(evaluation_needs(rules())) == []


@pytest.mark.parametrize(
    ("policy", "alpha", "fewest"),
    [
        ("strict", 0.05, 1),
        ("exact_paired", 0.05, 5),
        ("exact_paired", 0.4, 2),
        ("exact_paired", 0.01, 7),
    ],
)
def test_the_fewest_items_are_those_with_which_the_policy_itself_can_accept(
    policy: Any, alpha: float, fewest: int
) -> None:
    chosen = rules(gate_policy=policy, gate_alpha=alpha)
    assert POLICIES[policy].fewest_items(chosen) == fewest
    for items, accepts in ((fewest - 1, False), (fewest, True)):
        won, lost = (
            Evaluation(scores={str(item): ItemScore(hard=score, soft=score) for item in range(items)})
            for score in (1.0, 0.0)
        )
        if items:
            evidence = evidence_of(won, lost, chosen)
            assert (POLICIES[policy].judge(evidence, chosen).action is Action.ACCEPT) is accepts


def config(**knobs: Any) -> TrainConfig:
    paths = {"publishing__gate_policy": "strict"} | knobs
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in paths.items()}))


def test_a_gate_needs_its_items_unless_it_is_off() -> None:
    assert training_needs(config()) == []
    (need,) = training_needs(config(evaluation__gate_policy="exact_paired"))
    assert (need.split, need.rows) == (Split.VAL, 5)
    assert training_needs(config(evaluation__gate_policy="exact_paired", evaluation__use_gate=False)) == []
    with pytest.raises(ConfigError, match=r"evaluation\.val_limit = 4: at least 5 "):
        training_needs(config(evaluation__gate_policy="exact_paired", evaluation__val_limit=4))


def test_so_does_the_one_before_publishing_at_its_own_level() -> None:
    (need,) = training_needs(config(publishing__gate_policy="exact_paired", publishing__gate_alpha=0.01))
    assert (need.split, need.rows) == (Split.TEST, 7)
    assert need.reason == "for publishing.gate_policy = exact_paired to accept anything"
    with pytest.raises(ConfigError, match=r"at least 4 .* publishing\.gate_policy = exact_paired"):
        training_needs(
            config(publishing__gate_policy="exact_paired", publishing__gate_alpha=0.1, evaluation__test_limit=3)
        )
