from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import (
    Preset,
    StatedScores,
    TrainConfig,
    changed_paths,
    fields_by_path,
    nest,
)
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.optimizer.judge import check_judge
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.tasks.triggered import chosen_preset
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.report import summary
from skillopt_airflow.rollout.requirements import check_requirements
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, preset_names, preset_of
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.report.reporting import view_of, write_report
from tests.training.in_process import Training

TASK: dict[str, Any] = {
    "prompt": "{{ question }}",
    "reference": "answer",
    "answer": {"from": "tags", "tag": "final"},
    "score": {"by": "number", "relative": 0.1},
}
DECLARED = {"task": TASK}


@pytest.mark.parametrize(
    ("sandbox", "image"),
    [
        ({}, "there/skillopt-sandbox:latest"),
        ({"image": "skillopt-sandbox-alfworld:latest"}, "there/skillopt-sandbox-alfworld:latest"),
        ({"image": "mine:1"}, "mine:1"),
        ({"image": "sha256:1f"}, "sha256:1f"),
    ],
)
def test_the_registry_has_the_projects_own_images(sandbox: dict[str, str], image: str) -> None:
    assert TrainConfig.from_layers({"sandbox": sandbox | {"registry": "there"}}).image == image


def test_a_switch_may_be_without_quotes_in_yaml() -> None:
    config = TrainConfig.from_layers(yaml.safe_load("model: {reasoning_effort: on, optimizer_reasoning_effort: off}"))
    assert (config.model.reasoning_effort, config.model.optimizer_reasoning_effort) == ("on", "off")


def test_every_group_is_listed() -> None:
    dumped = TrainConfig().model_dump()
    assert [f"{group}.{key}" for group, keys in dumped.items() for key in keys or ()] == list(fields_by_path())


def test_a_task_is_stored_and_read_as_it_was_written() -> None:
    config = read_config(DECLARED)
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert read_config(config.model_dump()) == config
    assert config.model_dump()["task"] == TASK | {
        "id": None,
        "group": None,
        "files": [],
        "score": TASK["score"] | {"absolute": 0.0},
        "alternatives": False,
        "judge": None,
        "pictures": [],
    }


def test_a_group_that_is_not_there_stays_so() -> None:
    assert TrainConfig().task is None
    assert TrainConfig.from_layers(TrainConfig().model_dump(), {"task": None}).task is None
    assert TrainConfig.from_layers(DECLARED, {"task": None}).task is None


def test_a_run_overrides_a_key_of_a_rule_or_chooses_another() -> None:
    config = read_config(DECLARED)
    nearer = read_config(config.model_dump(), nest({"task.score.relative": 0.01}))
    assert changed_paths(config, nearer) == ["task.score"]
    assert changed_paths(config, config) == []
    assert changed_paths(TrainConfig(), config)[:2] == ["task.prompt", "task.reference"]
    assert nearer.model_dump()["task"]["score"] == {"by": "number", "absolute": 0.0, "relative": 0.01}
    other = read_config(config.model_dump(), nest({"task.score": {"by": "exact"}, "task.id": "key"}))
    assert changed_paths(config, other) == ["task.id", "task.score"]


def test_later_layers_win_key_by_key() -> None:
    first: dict[str, Any] = {"train": {"seed": 1, "batch_size": 5}}
    config = read_config(first, {"train": {"seed": 2}}, {"data": {"limit": 3}})
    assert (config.train.seed, config.train.batch_size, config.data.limit) == (2, 5, 3)
    assert first == {"train": {"seed": 1, "batch_size": 5}}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "train.seed": st.integers(-9, 9),
            "evaluation.gate_metric": st.sampled_from(["hard", "soft", "mixed"]),
            "evaluation.gate_mixed_weight": st.floats(0, 1),
            "evaluation.eval_test": st.booleans(),
            "model.temperature": st.none() | st.floats(0, 2),
            "data.split_ratio": st.sampled_from(["1:1:1", "10:20:30", "2:1:5:2"]),
        },
    )
)
def test_overrides_round_trip(overrides: dict[str, Any]) -> None:
    config = read_config(nest(overrides))
    dumped = config.model_dump()
    for path, value in overrides.items():
        group, key = path.split(".")
        assert dumped[group][key] == value
    assert read_config(dumped) == config
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert read_config({}, nest(overrides), {}) == config


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"optimizer.learning_rat": 2}, "optimizer.learning_rat: .* learning_rate, min_learning_rate"),
        ({"optimiser.learning_rate": 2}, "optimiser: .* train, gradient, optimizer"),
        ({"optimizer.lr_scheduler": "step"}, "optimizer.lr_scheduler = 'step': .*'constant', 'linear' or 'cosine'"),
        ({"train.seed": {"x": 1}}, "train.seed = {'x': 1}"),
        ({"train": None}, "train: .*None"),
        ({"train.batch_size": 0, "data.lim": 1}, "train.batch_size = 0: .*; data.lim: "),
        ({"optimizer.learning_rate": 1}, "min_learning_rate"),
        (
            {"optimizer.use_skill_aware_reflection": True, "optimizer.skill_update_mode": "full_rewrite_minibatch"},
            "skill_update_mode",
        ),
        ({"data.split_ratio": "2:1"}, "data.split_ratio = '2:1'"),
        ({"data.split_ratio": 7267}, "data.split_ratio = 7267: write three or four whole numbers"),
        ({"data.split_ratio": "00:1:1"}, "data.split_ratio = '00:1:1'"),
        ({"storage.prefix": "team-a"}, "storage.prefix = 'team-a': .* team-a/"),
        ({"storage.prefix": "/"}, "storage.prefix = '/'"),
        ({"model.call_timeout": float("inf")}, "model.call_timeout = inf"),
        ({"sandbox.cpus": float("nan")}, "sandbox.cpus = nan"),
        ({"model.target_conn_id": ""}, "model.target_conn_id = ''"),
        ({"sandbox.memory": "4Gi"}, "sandbox.memory = '4Gi': .* 4g"),
        ({"sandbox.memory": "0m"}, "sandbox.memory = '0m'"),
        ({"retention.trajectory_days": 700_001}, "retention.trajectory_days = 700001"),
        ({"publishing.approval_hours": 1e12}, "publishing.approval_hours = 1000000000000.0"),
        ({"regate.timezone": "Mars/Base"}, "regate.timezone"),
        ({"regate.timezone": "../etc/passwd"}, "regate.timezone"),
        ({"task": 5}, "task: .*5"),
        ({"task.promt": "x"}, "task.promt: .* prompt, reference, id"),
        ({"task": TASK | {"prompt": ""}}, "task.prompt = ''"),
        ({"task": TASK | {"pictures": "img"}}, r"task.pictures = 'img': .* \[img\]"),
        ({"task": TASK | {"files": "{{ a }}"}}, r"task.files = '{{ a }}': .* \['{{ a }}'\]"),
        ({"task": {"prompt": "x"}}, "task.reference: .* required; task.score: .* required"),
        ({"task": TASK | {"score": {"by": "eaxct"}}}, "task.score = {'by': 'eaxct'}: .*f1, contains"),
        ({"task": TASK | {"score": {"by": "number", "rel": 1}}}, "number.rel: .* by, abs"),
        ({"task": TASK | {"answer": "tags"}}, "task.answer = 'tags': .*'from'"),
        ({"model.reasoning_effort": 512, "model.max_tokens": 512}, "max_tokens = 512"),
        ({"model.optimizer_reasoning_effort": 9, "model.optimizer_max_tokens": 9}, "optimizer_max_tokens = 9"),
        ({"data.split_mode": "manifest"}, "split_manifest"),
        ({"data.split_manifest": "m.json"}, "split_mode manifest"),
        ({"search.conn_id": "skillopt_search"}, "search.conn_id = skillopt_search: .*model.harness"),
    ],
)
def test_bad_overrides_are_refused_by_their_key(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_config(nest(overrides))


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
    preset = Preset(settings={"train": {"batch_size": 10, "seed": 1}, "optimizer": {"learning_rate": 9}}).settings
    plain = params.run_config(CONFIG, filled(), preset)
    assert (plain.train.batch_size, plain.train.seed, plain.optimizer.learning_rate) == (10, 1, 9)
    typed = filled(**{"train.seed": 7, "optimizer.learning_rate": 8, "overrides": {"optimizer.learning_rate": 3}})
    asked = params.run_config(CONFIG, typed, preset)
    assert (asked.train.batch_size, asked.train.seed, asked.optimizer.learning_rate) == (10, 7, 3)
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
    assert "A paper, table 7 reports 50.0% to 62.5%" in told
