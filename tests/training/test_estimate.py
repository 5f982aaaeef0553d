import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.budget import ModelPrice, Prices
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.types import DATA_SPLITS
from skillopt_airflow.training.estimate import Estimate, estimate

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
    config = TrainConfig.from_layers(
        {"model": MODELS, "train": {"preflight": False, "speculative_rollout": False}}, layers
    )
    by_split = dict(zip(DATA_SPLITS, sizes, strict=True))
    return estimate(config, by_split, 2000.0, 800, steps_in_epoch(sizes[0], config), prices)


def calls(found: Estimate) -> dict[str, int]:
    return {stage.stage: stage.calls for stage in found.stages}


@pytest.mark.parametrize(
    ("sizes", "steps", "rollouts", "val_share", "optimizer_calls", "with_shorter_slices"),
    [
        pytest.param(SEARCHQA, 40, (12_920, 14_320), 83, 406, 406, id="SearchQA"),
        pytest.param((107, 53, 374), 12, (2_038, 2_412), 58, 126, 122, id="DocVQA"),
        pytest.param((50, 24, 172), 8, (904, 1_076), 43, 86, 70, id="OfficeQA"),
        pytest.param((35, 17, 125), 4, (612, 737), 28, 46, 46, id="LiveMathematicianBench"),
    ],
)
def test_the_papers_protocol_takes_as_much_as_the_reference_implementation(
    sizes: tuple[int, int, int],
    steps: int,
    rollouts: tuple[int, int],
    val_share: int,
    optimizer_calls: int,
    with_shorter_slices: int,
) -> None:
    """The reference measures no slow update and nothing before publishing, only the last skill at the end.

    Its tests are of two or three skills. It takes every slice for a full one, and writes a memory after the last epoch
    instead of the first.
    """
    found, (_, val, test) = estimated(sizes), sizes
    counted = calls(found)
    assert counted["rank"] == steps
    slow_updates = 3 * val
    of_reference = found.calls("target") - counted["test"] - counted["publish"] - slow_updates + val
    assert (of_reference + 2 * test, of_reference + 3 * test) == rollouts
    on_val = counted["seed"] + counted["evaluate"] - slow_updates + val
    assert round(100 * on_val / of_reference) == val_share
    assert found.calls("optimizer") == with_shorter_slices <= optimizer_calls


BASE = calls(estimated(SEARCHQA))


REWRITES = {"optimizer.skill_update_mode": "full_rewrite_minibatch"}
AWARE = {"optimizer.use_skill_aware_reflection": True}
CONSOLIDATES = {"optimizer.skill_aware_consolidate_threshold": 5}


@pytest.mark.parametrize(
    ("knobs", "changes"),
    [
        ({"evaluation.draws": 3}, {"seed": 600, "evaluate": 25_800, "test": 12_600}),
        ({"evaluation.val_limit": 50}, {"seed": 50, "evaluate": 2_150}),
        ({"publishing.draws": 3}, {"publish": 1_400 * (3 + 2)}),
        ({"evaluation.test_limit": 100}, {"test": 300, "publish": 100}),
        ({"evaluation.eval_test": False}, {"test": None, "publish": 2_800}),
        ({"evaluation.test_each_epoch": True}, {"test": 6 * 1_400}),
        ({"evaluation.test_each_epoch": True, "evaluation.eval_test": False}, {"test": None, "publish": 2_800}),
        ({"evaluation.use_gate": False}, {"final": 200}),
        ({"optimizer.slow_update_gate": False}, {"final": 200}),
        ({"optimizer.use_slow_update": False}, {"evaluate": 8_000, "longitudinal": 80, "slow_update": None}),
        ({"optimizer.use_meta_skill": False}, {"meta_skill": None}),
        ({"optimizer.use_meta_reflect": True}, {"evaluate": 47 * 200, "meta_reflect": 4}),
        ({"optimizer.slow_update_samples": 1_000}, {"longitudinal": 3 * 2 * 400}),
        ({"optimizer.lr_control_mode": "autonomous"}, {"learning_rate": 40}),
        ({"optimizer.lr_control_mode": "none"}, {"rank": None}),
        ({"optimizer.skill_update_mode": "rewrite_from_suggestions"}, {"rewrite": 40}),
        (REWRITES, {"merge": None}),
        (REWRITES | {"optimizer.lr_control_mode": "autonomous"}, {"merge": None}),
        # Bodies are merged as often as patches would be.
        (REWRITES | {"optimizer.merge_rewrites": True}, {"merge": None, "merge_rewrites": BASE["merge"]}),
        (CONSOLIDATES, {}),
        (AWARE | CONSOLIDATES, {"consolidate": 40, "final": 200}),
        (AWARE | {"optimizer.skill_aware_notes_gate": True}, {}),
        ({"gradient.use_deep_reflect": True}, {"follow_up": 240, "deep_reflect": 240}),
        ({"gradient.analyst_rounds": 3}, {"reflect": 720}),
        ({"gradient.failure_only": True}, {"reflect": 200, "merge": 40}),
        ({"gradient.minibatch_size": 40}, {"reflect": 80, "merge": 40}),
        ({"train.preflight": True}, {"preflight": 1}),
        # Behind each step but the last one of an epoch, and behind what follows that.
        ({"train.speculative_rollout": True}, {"speculate": 39 * 40}),
        # It takes two rejections to expect the next one.
        ({"train.speculative_rollout": "auto"}, {"speculate": 37 * 40}),
        ({"train.rollouts_per_item": 3}, {"rollout": 3 * 4 * 400}),
        (
            {"train.accumulation": 3},
            # Three slices a step, one for the fourth; up to 18 minibatches, such as 9 and 9, then 2 + 2 + 1 merges.
            {"evaluate": 19 * 200, "merge": 4 * (3 * 5 + 3), "rank": 16},
        ),
    ],
)
def test_a_knob_changes_the_stages_that_it_is_about(knobs: dict[str, object], changes: dict[str, int | None]) -> None:
    found = calls(estimated(SEARCHQA, **nest(knobs)))
    assert found == {stage: count for stage, count in (BASE | changes).items() if count is not None}


def test_of_rewrites_one_is_chosen_also_where_edits_have_no_limit() -> None:
    rewriting = {"lr_control_mode": "none", "skill_update_mode": "full_rewrite_minibatch"}
    found = estimated(SEARCHQA, optimizer=rewriting)
    assert calls(found)["rank"] == calls(found)["evaluate"] // 200 - 3
    [rank] = [stage for stage in found.stages if stage.stage == "rank"]
    # 4,000 characters of instructions, and the skill's 800 as it is and as each of up to 6 minibatches wants it.
    assert rank.likely.prompt == rank.calls * (4_000 + 800 + 6 * 800) // 4


def test_tokens_and_price() -> None:
    found = estimated((1, 1, 1), train={"num_epochs": 1}, evaluation={"eval_test": False})
    assert calls(found) == {"seed": 1, "rollout": 1, "evaluate": 1, "reflect": 1, "rank": 1, "publish": 2}
    seed = found.stages[0]
    [reflect] = [stage for stage in found.stages if stage.stage == "reflect"]
    assert (seed.likely.prompt, seed.likely.completion) == (700, 200)
    assert (seed.most.prompt, seed.most.completion) == (825, 16_384)
    # 4,000 characters of instructions, 800 of skill, and 8 trajectories of 2,000 and an answer of 800.
    assert (reflect.likely.prompt, reflect.likely.completion) == (6_800, 700)
    by_hand = sum(
        stage.likely.prompt * price.input + stage.likely.completion * price.output
        for stage in found.stages
        for price in (PRICES[stage.role],)
        if price is not None
    )
    assert found.usd("likely") == pytest.approx(by_hand / 1e6)


def test_the_log_says_what_each_stage_takes_and_what_it_costs() -> None:
    lines = estimated(SEARCHQA, budget={"max_calls": 15_000, "max_usd": 2.5}).lines()
    assert "  evaluate (target): 8,600 calls, 7.7 M to 189.9 M tokens" in lines
    text = "\n".join(lines)
    assert "16,120 target and 406 optimizer calls" in text
    assert "openai:large at 1.25 and 10 a million tokens" in text
    assert "budget.max_calls = 15,000 " in lines[-2]
    assert "budget.max_usd = 2.5 " in lines[-1]
    assert "codex" not in text
    unknown = estimated(
        SEARCHQA, prices={"target": None, "optimizer": PRICES["optimizer"]}, model=MODELS | {"harness": "codex"}
    )
    assert unknown.usd("likely") is None
    text = "\n".join(unknown.lines())
    assert "no price known for openai-chat:small" in text
    assert "codex decides by itself" in text
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
                "draws": st.integers(1, 3),
                "val_limit": st.none() | st.integers(1, 100),
                "eval_test": st.booleans(),
                "test_each_epoch": st.booleans(),
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
    for stage, count in calls(small).items():
        assert calls(large)[stage] >= count
    for case in ("likely", "most"):
        assert large.tokens(case) >= small.tokens(case)


@given(CONFIGS, SIZES)
def test_the_most_is_at_least_what_is_likely(layers: dict[str, Any], sizes: tuple[int, int, int]) -> None:
    found = estimated(sizes, **layers)
    assert all(stage.likely.prompt <= stage.most.prompt for stage in found.stages)
    assert all(stage.likely.completion <= stage.most.completion for stage in found.stages)
    likely, most = found.usd("likely"), found.usd("most")
    assert 0 < likely <= most


@given(st.integers(1, 5))
def test_a_conversation_counts_as_many_calls_as_it_may_have_turns(turns: int) -> None:
    several = calls(estimated(SEARCHQA, gradient={"use_deep_reflect": True}, model=MODELS | {"max_turns": turns}))
    assert several["evaluate"] == turns * BASE["evaluate"]
    assert several["follow_up"] == 240


def test_each_call_of_a_conversation_reads_what_was_said_before_it() -> None:
    def prompt(stage: str, turns: int) -> tuple[int, int]:
        found = estimated(SEARCHQA, gradient={"use_deep_reflect": True}, model=MODELS | {"max_turns": turns})
        [one] = [each for each in found.stages if each.stage == stage]
        return one.likely.prompt // one.calls, one.most.prompt // one.calls

    single, several, many = prompt("evaluate", 1), prompt("evaluate", 11), prompt("evaluate", 1000)
    # Five answers of 200 tokens on average, and a thousand characters behind each.
    assert several[0] - single[0] == pytest.approx(5 * (200 + 1000 / 4), abs=1)
    assert several[1] - single[1] > 10 * (several[0] - single[0])
    assert many[1] < 250_000
    assert prompt("follow_up", 11) == prompt("follow_up", 1)
    assert prompt("reflect", 11)[0] > 2 * prompt("reflect", 1)[0]


def test_what_goes_as_batch_jobs_costs_half() -> None:
    usual, batched = (estimated(SEARCHQA, model={"batch": batch}) for batch in (False, True))
    jobs = {"seed", "evaluate", "final", "test"}
    price = PRICES["target"]
    saved = sum(price.usd(one.likely.prompt, one.likely.completion) for one in usual.stages if one.stage in jobs) / 2
    before, after = usual.usd("likely"), batched.usd("likely")
    assert after == pytest.approx(before - saved)
