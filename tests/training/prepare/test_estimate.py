import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.run.budget import ModelPrice, Prices
from skillopt_airflow.core.values.types import DATA_SPLITS
from skillopt_airflow.training.prepare.estimate import Estimate, Prompt, estimate_training

MODELS = {"target": "openai-chat:small", "optimizer": "openai:large"}
PRICES: Prices = {
    "target": ModelPrice(input=0.25, output=2.0, source="budget.prices"),
    "optimizer": ModelPrice(input=1.25, output=10.0, source="a table of 2026"),
}
SEARCHQA = (400, 200, 1400)


def steps_in_epoch(train_size: int, config: TrainConfig) -> int:
    train = config.train
    steps = math.ceil(train_size / (train.batch_size * train.accumulation))
    return steps if train.steps_per_epoch is None else min(train.steps_per_epoch, steps)


def estimated(sizes: tuple[int, int, int], prices: Prices = PRICES, **layers: Any) -> Estimate:
    config = TrainConfig.from_layers({"model": MODELS, "train": {"speculative_rollout": False}}, layers)
    by_split = dict(zip(DATA_SPLITS, sizes, strict=True))
    return estimate_training(config, by_split, Prompt(2000.0), 800, steps_in_epoch(sizes[0], config), prices)


def calls(found: Estimate) -> dict[str, int]:
    return {one.role: one.calls for one in found.roles}


@pytest.mark.parametrize(
    ("sizes", "steps", "rollouts", "optimizer_calls"),
    [
        pytest.param(SEARCHQA, 40, (12_920, 14_320), 406, id="SearchQA"),
        pytest.param((107, 53, 374), 12, (2_038, 2_412), 126, id="DocVQA"),
        pytest.param((50, 24, 172), 8, (904, 1_076), 86, id="OfficeQA"),
        pytest.param((35, 17, 125), 4, (612, 737), 46, id="LiveMathematicianBench"),
    ],
)
def test_the_papers_protocol_takes_as_much_as_the_reference_implementation(
    sizes: tuple[int, int, int], steps: int, rollouts: tuple[int, int], optimizer_calls: int
) -> None:
    """The reference gates no slow update and runs nothing before publishing. Its tests are of two or three skills."""
    found, (_, val, test) = estimated(sizes), sizes
    assert found.rollouts["evaluate"] == (steps + 3) * val
    of_reference = sum(found.rollouts.values()) - found.rollouts["test"] - found.rollouts["publish"] - 3 * val
    assert (of_reference + 2 * test, of_reference + 3 * test) == rollouts
    assert optimizer_calls <= calls(found)["optimizer"] <= 2 * optimizer_calls


BASE = dict(estimated(SEARCHQA).rollouts)


@pytest.mark.parametrize(
    ("knobs", "changes"),
    [
        ({"evaluation.samples": 3}, {"seed": 600, "evaluate": 25_800, "final": 600, "test": 12_600}),
        ({"evaluation.val_limit": 50}, {"seed": 50, "evaluate": 2_150, "final": 50}),
        ({"publishing.samples": 3}, {"publish": 2 * 1_400 * 3}),
        ({"evaluation.test_limit": 100}, {"test": 300, "publish": 200}),
        ({"evaluation.eval_test": False}, {"test": 0}),
        ({"evaluation.eval_test": "each_epoch"}, {"test": 6 * 1_400}),
        ({"optimizer.use_slow_update": False}, {"evaluate": 8_000, "compare_epochs": 80}),
        ({"optimizer.use_meta_reflect": True}, {"evaluate": 47 * 200}),
        ({"optimizer.slow_update_samples": 1_000}, {"compare_epochs": 3 * 2 * 400}),
        ({"gradient.use_deep_reflect": True}, {"follow_up": 240}),
        ({"train.speculative_rollout": True}, {"speculate": 4 * 400}),
        ({"train.samples": 3}, {"rollout": 3 * 4 * 400}),
        ({"train.accumulation": 3}, {"evaluate": 19 * 200}),
    ],
)
def test_a_knob_changes_the_stages_that_it_is_about(knobs: dict[str, object], changes: dict[str, int]) -> None:
    assert estimated(SEARCHQA, **nest(knobs)).rollouts == BASE | changes


@pytest.mark.parametrize(
    ("knobs", "reflections"),
    [
        # Up to 5 minibatches of failures and successes of a batch of 40, and one more as they are apart.
        ({}, 40 * 6),
        ({"gradient.failure_only": True}, 40 * 5),
        ({"gradient.analyst_rounds": 3}, 40 * 6 * 3),
        ({"gradient.use_deep_reflect": True}, 40 * 6 + 240),
        ({"gradient.minibatch_size": 40}, 40 * 2),
        ({"train.batch_size": 1, "train.steps_per_epoch": 10}, 40),
    ],
)
def test_the_optimizer_is_a_factor_of_its_minibatches(knobs: dict[str, object], reflections: int) -> None:
    assert calls(estimated(SEARCHQA, **nest(knobs)))["optimizer"] == 2 * (reflections + 40 + 4)


def test_tokens_and_price() -> None:
    found = estimated((1, 1, 1), train={"num_epochs": 1}, evaluation={"eval_test": False})
    used = {stage: count for stage, count in found.rollouts.items() if count}
    assert used == {"seed": 1, "rollout": 1, "evaluate": 1, "final": 1, "publish": 2}
    target, optimizer = found.roles
    assert target.likely == (6 * 700, 6 * 200)
    assert target.most == (6 * 825, 6 * 16_384)
    # One reflection on 4,000 characters of instructions, 800 of skill, and 8 trajectories: 2,000 and an answer of 800.
    assert (optimizer.calls, optimizer.likely) == (6, (6_800, 6 * 700))
    by_hand = 4_200 * 0.25 + 1_200 * 2.0 + 6_800 * 1.25 + 4_200 * 10.0
    assert found.usd("likely") == pytest.approx(by_hand / 1e6)


def test_the_log_names_prices_and_limits_that_may_end_the_run() -> None:
    text = "\n".join(estimated(SEARCHQA, budget={"max_calls": 15_000, "max_usd": 2.5}).lines())
    assert "evaluate 8,600" in text
    assert "openai:large at 1.25 and 10 " in text
    assert "budget.max_calls = 15,000 " in text
    assert "budget.max_usd = 2.5 " in text
    assert "codex" not in text
    unknown = estimated(
        SEARCHQA, prices={"target": None, "optimizer": PRICES["optimizer"]}, model=MODELS | {"harness": "codex"}
    )
    assert unknown.usd("likely") is None
    text = "\n".join(unknown.lines())
    assert "no price known for openai-chat:small;" in text
    assert "codex" in text
    assert "budget.max" not in text


CONFIGS = st.fixed_dictionaries(
    {
        "train": st.fixed_dictionaries(
            {
                "num_epochs": st.integers(1, 4),
                "steps_per_epoch": st.none() | st.integers(1, 12),
                "batch_size": st.integers(1, 50),
                "accumulation": st.integers(1, 4),
                "speculative_rollout": st.sampled_from([True, False, "auto"]),
            }
        ),
        "gradient": st.fixed_dictionaries(
            {
                "minibatch_size": st.integers(1, 12),
                "merge_batch_size": st.integers(2, 9),
                "failure_only": st.booleans(),
                "use_deep_reflect": st.booleans(),
            }
        ),
        "optimizer": st.fixed_dictionaries(
            {
                "use_slow_update": st.booleans(),
                "slow_update_gate": st.booleans(),
                "use_meta_skill": st.booleans(),
                "use_meta_reflect": st.booleans(),
                "lr_control_mode": st.sampled_from(["fixed", "autonomous", "none"]),
            }
        ),
        "evaluation": st.fixed_dictionaries(
            {
                "samples": st.integers(1, 3),
                "val_limit": st.none() | st.integers(1, 100),
                "eval_test": st.sampled_from([True, False, "each_epoch"]),
            }
        ),
    }
)
SIZES = st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))


@given(CONFIGS, SIZES, SIZES)
def test_more_items_never_take_less(
    layers: dict[str, Any], sizes: tuple[int, int, int], more: tuple[int, int, int]
) -> None:
    larger = (sizes[0] + more[0], sizes[1] + more[1], sizes[2] + more[2])
    small, large = estimated(sizes, **layers), estimated(larger, **layers)
    assert all(large.rollouts[stage] >= count for stage, count in small.rollouts.items())
    for case in ("likely", "most"):
        assert large.tokens(case) >= small.tokens(case)


@given(CONFIGS, SIZES)
def test_the_most_is_at_least_what_is_likely(layers: dict[str, Any], sizes: tuple[int, int, int]) -> None:
    found = estimated(sizes, **layers)
    assert all(one.likely.prompt <= one.most.prompt for one in found.roles)
    assert all(one.likely.completion <= one.most.completion for one in found.roles)
    likely, most = found.usd("likely"), found.usd("most")
    assert 0 < likely <= most


def test_a_conversation_counts_as_many_calls_as_it_may_have_turns_and_each_reads_the_ones_before() -> None:
    def target(turns: int) -> tuple[int, float, float]:
        one = estimated(SEARCHQA, model=MODELS | {"max_turns": turns}).roles[0]
        return one.calls, one.likely.prompt / one.calls, one.most.prompt / one.calls

    single, several, many = target(1), target(11), target(1000)
    assert several[0] == 11 * single[0]
    # Five answers of 200 tokens on average, and a thousand characters behind each.
    assert several[1] - single[1] == pytest.approx(5 * (200 + 1000 / 4), abs=1)
    assert several[2] - single[2] > 10 * (several[1] - single[1])
    assert many[2] < 250_000


def test_rollouts_in_batch_jobs_cost_half() -> None:
    usual, batched = (estimated(SEARCHQA, model={"batch": batch}) for batch in (False, True))
    jobs = sum(usual.rollouts[stage] for stage in ("seed", "evaluate", "final", "test"))
    target = PRICES["target"]
    assert target is not None
    saved = target.usd(*usual.roles[0].likely) * jobs / sum(usual.rollouts.values()) / 2
    before, after = usual.usd("likely"), batched.usd("likely")
    assert before is not None
    assert after == pytest.approx(before - saved)
