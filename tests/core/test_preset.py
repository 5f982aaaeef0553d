from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.preset import Preset, StatedScores
from skillopt_airflow.pipeline import params
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.pipeline.triggered import chosen_preset
from skillopt_airflow.report import summary
from skillopt_airflow.rollout.requirements import check_requirements
from skillopt_airflow.training.benchmark_settings import benchmark_config, preset_names, preset_of
from skillopt_airflow.training.judge_settings import check_judge
from skillopt_airflow.training.preparation import prepare_training
from skillopt_airflow.training.reporting import view_of, write_report
from tests.training.in_process import Training

CONFIG = benchmark_config("searchqa")
PAPER = preset_of("searchqa", "paper")


def filled(**changes: Any) -> dict[str, Any]:
    """The form as Airflow hands it over: every field, with the values of benchmark.yaml where nobody typed."""
    form = params.form(CONFIG, preset_names("searchqa"))
    return {path: field.value for path, field in form.items()} | changes


FOLDERS = "alfworld", "swebench"
"""Benchmarks whose data is a folder of splits."""
UNSTATED = "officeqa"
"""A benchmark of the paper's whose scores there are of other questions."""


@pytest.mark.parametrize("benchmark", benchmarks.names())
def test_each_benchmark_has_a_preset_which_its_graph_has_room_for(benchmark: str) -> None:
    [name] = preset_names(benchmark)
    preset, config = preset_of(benchmark, name), benchmark_config(benchmark)
    asked = params.run_config(config, {"overrides": {}}, preset.settings)
    assert (asked.train.num_epochs, asked.train.steps_per_epoch) == (4, None)
    assert (asked.train.batch_size == 40) == (name == "paper")
    assert asked.data.split_mode == ("split_dir" if benchmark in FOLDERS else "ratio")
    assert (asked.data.split_ratio, asked.data.split_seed) == ("2:1:7", 42)
    assert (asked.evaluation.val_limit, asked.evaluation.test_limit) == (None, None)
    assert (asked.model.reasoning_effort, asked.model.optimizer_reasoning_effort) == ("medium", "medium")
    assert (preset.scores is not None) == (name == "paper" and benchmark != UNSTATED)
    if preset.scores is not None:
        assert 0 < preset.scores.seed < preset.scores.best < 1
    # The harness, its turns and the judge are ones that the benchmark has.
    adapter = benchmarks.load(benchmark, asked.task)
    check_requirements(asked.model, adapter)
    check_judge(asked.evaluation, adapter)
    assert train_dag(benchmark, config).params["preset"] is None


def test_a_field_that_was_touched_wins_over_the_preset_and_an_override_over_both() -> None:
    preset = Preset(settings={"train": {"batch_size": 10, "num_epochs": 1}, "optimizer": {"learning_rate": 9}}).settings
    plain = params.run_config(CONFIG, filled(), preset)
    assert (plain.train.batch_size, plain.train.num_epochs, plain.optimizer.learning_rate) == (10, 1, 9)
    typed = filled(**{"train.num_epochs": 2, "optimizer.learning_rate": 8, "overrides": {"optimizer.learning_rate": 3}})
    asked = params.run_config(CONFIG, typed, preset)
    assert (asked.train.batch_size, asked.train.num_epochs, asked.optimizer.learning_rate) == (10, 2, 3)
    assert params.run_config(CONFIG, filled()) == CONFIG


def test_what_is_no_preset_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert chosen_preset("searchqa", filled(preset="paper")) == PAPER
    assert chosen_preset("searchqa", filled()) is None
    with pytest.raises(ConfigError, match=r"preset mine: .* paper"):
        chosen_preset("searchqa", {"preset": "mine"})
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "odd.yaml").write_text("setting: {}\n", encoding="utf-8")
    monkeypatch.setattr(benchmarks, "folder", lambda name: tmp_path)
    with pytest.raises(ConfigError, match=r"odd\.yaml: "):
        preset_of("searchqa", "odd")
    with pytest.raises(ConfigError, match=r"optimizer\.rate: no such key"):
        params.run_config(TrainConfig(), {"overrides": {}}, {"optimizer": {"rate": 2}})


@pytest.mark.nightly
@pytest.mark.slow
def test_the_report_says_what_the_authors_state_as_theirs() -> None:
    stated = StatedScores(source="A paper, table 7", target="a model", seed=0.5, best=0.625)
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1)
    prepare_training(training.run, training.config, stated)
    assert training.run.record.stated == stated
    plain = Training.of(train__num_epochs=1, train__steps_per_epoch=1)
    plain()
    view = view_of(plain.run, write_report(plain.run))
    assert "table" not in summary.outcome(view)
    told = summary.outcome(view.model_copy(update={"stated": stated}))
    assert "A paper, table 7, states 50.0 to 62.5 % for a model" in told
