from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, settings_at

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
