from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config

CONFIG = TrainConfig()


def filled(**changes: Any) -> dict[str, Any]:
    """The form as Airflow hands it over when only these fields were changed."""
    form = ParamsDict(params.form(CONFIG))
    form.update(changes)
    return form.validate()


@pytest.mark.parametrize("wanted", [True, False, "auto"])
def test_an_untouched_form_of_a_benchmark_with_its_own_values_changes_nothing(wanted: Any) -> None:
    config = TrainConfig.from_layers(CONFIG.model_dump(), {"train": {"speculative_rollout": wanted}})
    assert params.run_config(config, ParamsDict(params.form(config)).validate()) == config


def test_the_form_has_about_fifteen_fields_with_their_descriptions() -> None:
    form = params.form(CONFIG, presets=["paper"])
    assert set(form) == {*params.FORM, "preset", "overrides"}
    assert len(form) == 15
    assert not set(params.FORM) & set(params.FIXED_IN_GRAPH)
    for field in form.values():
        assert field.description


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimizer.learning_rate", 2),
        ("publishing.approval", True),
        ("budget.max_usd", 0.5),
        ("model.target", "openai-chat:x"),
        ("data.split_mode", "split_dir"),
    ],
)
def test_a_field_and_an_override_both_reach_the_configuration(path: str, value: Any) -> None:
    group, key = path.split(".")
    for changes in ({path: value}, {"overrides": {path: value}}, {"overrides": {group: {key: value}}}):
        config = params.run_config(CONFIG, filled(**changes))
        assert getattr(getattr(config, group), key) == value
        assert config == TrainConfig.from_layers(CONFIG.model_dump(), {group: {key: value}})


def test_overrides_win_over_fields_and_reach_what_the_form_does_not_show() -> None:
    config = params.run_config(
        CONFIG, filled(**{"model.max_turns": 1, "overrides": {"model.max_turns": 2, "sandbox.memory": "256m"}})
    )
    assert (config.model.max_turns, config.sandbox.memory) == (2, "256m")
    assert params.run_config(CONFIG, filled(overrides=None)) == CONFIG


@pytest.mark.parametrize(
    ("path", "value"), [("evaluation.gate_policy", "paper"), ("train.batch_size", 0), ("model.target", 7)]
)
def test_the_form_refuses_what_the_configuration_refuses(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match="Invalid input for param"):
        filled(**{path: value})


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"optimizer.rate": 2}, "optimizer.rate: no such key"),
        ({"train.num_epochs": 5}, "train.num_epochs = 5: the graph has room for 4"),
        ({"sandbox.engine": "kubernetes"}, "sandbox.engine is fixed"),
        ({"model.batch": True}, "model.batch is fixed"),
        (["train.seed"], "overrides: expected keys and values"),
    ],
)
def test_bad_overrides_are_explained(overrides: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        params.run_config(CONFIG, {"overrides": overrides})
    assert str(raised.value).startswith(said)


def test_a_bad_benchmark_file_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine" / "benchmark.yaml"
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(path.parent))
    path.parent.mkdir()
    for text, said in (
        (b"train: {seeds: 1}", "train.seeds: no such key"),
        (b"1: 2", "1: Keys should be strings"),
    ):
        path.write_bytes(text)
        with pytest.raises(ConfigError) as raised:
            benchmark_config("mine")
        assert str(raised.value).startswith(f"{path}: ")
        assert said in str(raised.value)
    path.write_text("# nothing set\n")
    assert benchmark_config("mine") == TrainConfig()
