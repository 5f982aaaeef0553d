import pytest

from skillopt_airflow.core.config import TrainConfig, fields_by_path, nest
from skillopt_airflow.core.reference_config import KNOBS, own_knobs

DEFAULTS = TrainConfig()


def test_settings_with_a_counterpart_have_our_names_and_the_others_are_listed_without_their_values() -> None:
    flat = {
        "edit_budget": 6,
        "lr_scheduler": "linear",
        "sel_env_num": 0,
        "test_env_num": 50,
        "reasoning_effort": "high",
        "skill_aware_appendix_source": "",
        "azure_openai_api_key": "secret",
        "out_root": "outputs/x",
    }
    assert own_knobs(flat, DEFAULTS) == (
        {
            "optimizer.learning_rate": 6,
            "optimizer.lr_scheduler": "linear",
            "evaluation.test_limit": 50,
            "model.reasoning_effort": "high",
            "model.optimizer_reasoning_effort": "high",
        },
        ["azure_openai_api_key", "out_root"],
    )


@pytest.mark.parametrize(("key", "value"), [("lr_scheduler", "autonomous"), ("batch_size", -1), ("use_gate", "maybe")])
def test_a_value_that_is_unknown_here_is_not_taken(key: str, value: object) -> None:
    assert own_knobs({key: value, "seed": 7}, DEFAULTS) == ({"train.seed": 7}, [key])  # type: ignore[dict-item]


@pytest.mark.parametrize(("rate", "least"), [(1, 1), (8, 6), (6, 2), (3, 3)])
def test_settings_that_are_allowed_only_together_are_taken_together(rate: int, least: int) -> None:
    taken = {"optimizer.learning_rate": rate, "optimizer.min_learning_rate": least}
    assert own_knobs({"edit_budget": rate, "min_edit_budget": least}, DEFAULTS) == (taken, [])
    assert own_knobs({"min_edit_budget": least, "edit_budget": rate}, DEFAULTS) == (taken, [])


def test_of_settings_that_exclude_each_other_one_is_taken() -> None:
    knobs, others = own_knobs({"edit_budget": 2, "min_edit_budget": 3, "seed": 7}, DEFAULTS)
    assert (knobs, others) == ({"optimizer.learning_rate": 2, "train.seed": 7}, ["min_edit_budget"])
    TrainConfig.from_layers(nest(knobs))


def test_a_value_that_the_benchmarks_own_settings_exclude_is_not_taken() -> None:
    own = TrainConfig.from_layers({"optimizer": {"min_learning_rate": 3}})
    assert own_knobs({"edit_budget": 2, "seed": 7}, own) == ({"train.seed": 7}, ["edit_budget"])
    both = {"optimizer.learning_rate": 2, "optimizer.min_learning_rate": 2}
    assert own_knobs({"edit_budget": 2, "min_edit_budget": 2}, own) == (both, [])


def test_every_counterpart_exists() -> None:
    assert {path for paths in KNOBS.values() for path in paths} <= set(fields_by_path())
