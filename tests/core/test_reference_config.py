import pytest

from skillopt_airflow.core.config import fields_by_path
from skillopt_airflow.core.reference_config import KNOBS, own_knobs


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
    assert own_knobs(flat) == (
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
    assert own_knobs({key: value, "seed": 7}) == ({"train.seed": 7}, [key])  # type: ignore[dict-item]


def test_every_counterpart_exists() -> None:
    assert {path for paths in KNOBS.values() for path in paths} <= set(fields_by_path())
