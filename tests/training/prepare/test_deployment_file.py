from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.training.prepare.benchmark_settings import (
    VARIABLE,
    benchmark_config,
    check_allowed,
    check_skills,
    deployment,
    read_yaml,
    settings_at,
)

THEIRS = TrainConfig.from_layers({"storage": {"conn_id": "theirs"}})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deployment.yaml"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_without_a_file_runs_name_what_their_benchmark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    assert benchmark_config("searchqa").sandbox.queue is None
    check_allowed(TrainConfig(), TrainConfig())
    with pytest.raises(ConfigError, match=r"storage.conn_id = 'theirs'.* SKILLOPT_DEPLOYMENT"):
        check_allowed(THEIRS, TrainConfig())


def test_a_mapping_may_be_merged_into_others(file: Path) -> None:
    file.write_text("a: &a {seed: 1, size: 2}\nb: &b {<<: *a, size: 3}\nc: {<<: *a, <<: *b, seed: 4}\n1: x\n'1': y")
    assert read_yaml(file) == {
        "a": {"seed": 1, "size": 2},
        "b": {"seed": 1, "size": 3},
        "c": {"seed": 4, "size": 3},
        1: "x",
        "1": "y",
    }


def test_the_file_allows_everything_or_a_list(file: Path) -> None:
    file.write_text("allowed: everything")
    check_allowed(THEIRS, TrainConfig())
    check_skills({"skill": "s3://theirs/skill.md"})
    file.write_text("allowed: {connections: [theirs], data: ['s3://ours/*']}")
    check_allowed(THEIRS, TrainConfig())
    check_skills({"skill": "s3://ours/skill.md", "compare_to": "seed"})
    with pytest.raises(ConfigError, match=r"compare_to = 's3://theirs/skill.md'"):
        check_skills({"skill": "seed", "compare_to": "s3://theirs/skill.md"})


def test_defaults_lie_below_what_a_benchmark_says(file: Path) -> None:
    file.write_text("defaults: {sandbox: {queue: engine, memory: 3g}, train: {batch_size: 7}}")
    assert benchmark_config("swebench").sandbox.queue == "engine"
    file.write_text("defaults: {data: {split_ratio: '1:1:1'}, sandbox: {registry: registry.example.com}}")
    assert benchmark_config("searchqa").image == "registry.example.com/skillopt-sandbox:latest"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("allowed: {connection: [a]}", r"deployment.yaml: allowed.connection: .* connections,"),
        ("allowed: everthing", r"deployment.yaml: allowed: .* everything"),
        ("a: 1", r"deployment.yaml: a: .* allowed, defaults, shared_folders"),
        ("- 1", "deployment"),
        ("a: [", "not YAML"),
        ("defaults:\n  train: {seed: 1}\n  train: {batch_size: 2}", r"train occurs twice\n.*line 3, column 3"),
    ],
)
def test_a_file_of_something_else(file: Path, content: str, says: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match=says):
        deployment()


def test_defaults_that_no_benchmark_could_have_are_not_blamed_on_one(file: Path) -> None:
    with pytest.raises(ConfigError, match=f"{file}: it cannot be read"):
        deployment()
    file.write_text("# nothing yet\n")
    assert deployment().defaults == {}
    file.write_text("defaults: {sandbox: {registri: x}}")
    with pytest.raises(ConfigError, match=rf"^SKILLOPT_DEPLOYMENT: {file}: defaults: sandbox.registri"):
        benchmark_config("searchqa")


@pytest.mark.parametrize(
    "lines",
    [
        "prompt: {{ question }} Answer.",
        "prompt: Question: {{ question }}",
        "prompt: {% if hint %}{{ hint }}{% endif %}",
        "pictures: [{{ image }}]",
        "prompt:\n    {{ question }}: x\n    y",
    ],
)
def test_a_template_without_quotation_marks_gets_a_hint(lines: str, tmp_path: Path) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_text(f"task:\n  {lines}\n  reference: answer\n")
    with pytest.raises(ConfigError, match=r"benchmark\.yaml: not YAML: [\s\S]*\nPut quotation marks around a template"):
        read_yaml(file)


def test_other_slips_get_none(tmp_path: Path) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_text('task:\n  prompt: "{{ question }}"\n  score: {by: exact\n  reference: answer\nx: y\n')
    with pytest.raises(ConfigError, match="not YAML") as error:
        read_yaml(file)
    assert "quotation marks" not in str(error.value)
    file.write_bytes(b"task: \xff")
    with pytest.raises(ConfigError, match="not YAML"):
        read_yaml(file)


OWN = "train: {batch_size: 64, seed: 3}\n"
OF_SAMPLE = "train: {batch_size: 4}\ngradient: {minibatch_size: 2}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A benchmark whose sample has settings."""
    made = tmp_path / "mine"
    (made / "sample").mkdir(parents=True)
    (made / "benchmark.yaml").write_text(OWN)
    (made / "sample" / "settings.yaml").write_text(OF_SAMPLE)
    monkeypatch.setenv(LIST_VARIABLE, str(made))
    return made


def sizes(config: TrainConfig) -> tuple[int, int, int]:
    return config.train.batch_size, config.train.seed, config.gradient.minibatch_size


def test_the_samples_settings_apply_to_the_sample_only(folder: Path) -> None:
    assert sizes(benchmark_config("mine")) == sizes(benchmark_config("mine", "sample")) == (4, 3, 2)
    assert sizes(benchmark_config("mine", "s3://data/all.json")) == (64, 3, 8)
    elsewhere: dict[str, Any] = {"train": {"batch_size": 64}, "gradient": {"minibatch_size": 8}}
    assert settings_at("mine", "s3://data/all.json") == elsewhere
    assert settings_at("mine", "sample") == {}
    # Another folder that is named as the sample is, wherever it is.
    assert settings_at("mine", str(folder / "sample")) == elsewhere


def test_data_that_the_benchmark_names_has_the_benchmarks_settings(folder: Path) -> None:
    (folder / "benchmark.yaml").write_text(OWN + "data: {uri: all.json}\n")
    assert sizes(benchmark_config("mine")) == (64, 3, 8)
    assert settings_at("mine", "sample") == {"train": {"batch_size": 4}, "gradient": {"minibatch_size": 2}}


def test_a_bad_setting_of_the_sample_is_named(folder: Path) -> None:
    file = folder / "sample" / "settings.yaml"
    file.write_text("train: {batch: 4}\n")
    with pytest.raises(ConfigError, match=r"train\.batch: ") as raised:
        benchmark_config("mine")
    assert str(raised.value).startswith(f"{file}: ")
    assert sizes(benchmark_config("mine", "s3://data/all.json")) == (64, 3, 8)
    file.unlink()
    assert sizes(benchmark_config("mine")) == (64, 3, 8)
