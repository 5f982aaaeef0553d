"""`make import`: the commands of the page, as make reads them and against a real S3 server."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import import_run
from local.__main__ import _parser
from local.home import PROJECT, Home
from local.import_run import run
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError, PlatformError
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.airflow_connections import AirflowConnections
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.imported import ReferenceRun
from skillopt_airflow.training.run_record import RunRecord
from tests.store.conftest import aws_variables, s3_client, s3_endpoint, store
from tests.training.reference_folder import BEST, write

if TYPE_CHECKING:
    pass

__all__ = ["aws_variables", "s3_client", "s3_endpoint", "store"]

PAGE = (PROJECT / "docs" / "import.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^make import .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(command: str) -> None:
    shown = [*shlex.split(command), "-n", "--no-print-directory"]
    said = subprocess.run(shown, cwd=PROJECT, capture_output=True, text=True, check=True)
    line = said.stdout.replace("\\\n", " ").partition(" -m local ")[2]
    asked = _parser().parse_args(shlex.split(line))
    assert asked.folder == Path("outputs/my_run")
    expected = ["data.uri=/data/searchqa_split", "data.split_mode=split_dir"] if "SET=" in command else []
    assert (asked.benchmark, asked.set) == ("searchqa" if "BENCHMARK=" in command else "", expected)


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, s3_endpoint: str) -> None:
    """A platform's connections, without an engine or models behind them."""
    s3 = {"conn_type": "aws", "login": "test", "password": "distinctive-1"}
    s3["extra"] = {"region_name": "us-east-1", "endpoint_url": s3_endpoint}  # type: ignore[assignment]
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_S3", json.dumps(s3))
    for name in ("target", "optimizer"):
        model = {"conn_type": "pydanticai", "extra": {"model": f"openai-chat:stand-in-{name}"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_SKILLOPT_{name.upper()}", json.dumps(model))
    monkeypatch.setattr(import_run, "environment", lambda home: {})
    monkeypatch.setattr(import_run, "lost_connections", lambda home: {})
    monkeypatch.setattr(AirflowConnections, "image", lambda self, config: "sha256:here")


@pytest.mark.usefixtures("platform")
def test_the_run_is_in_the_platforms_bucket_and_the_output_says_what_to_do(
    tmp_path: Path, store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "my_run")
    settings = [f"storage.bucket={store.bucket}"]
    assert run(Home.at(tmp_path), folder, settings=settings) == 0
    name = ReferenceRun(folder).name
    keys = RunKeys("", "searchqa", name)
    assert store.get_text(keys.best_skill) == BEST
    said = capsys.readouterr().out
    assert "Checking the items of data.uri = " in said
    assert f"Imported: run {name} in s3://{store.bucket}/runs/searchqa/{name}/" in said
    assert "optimizer.learning_rate=6" in said
    assert re.search(r"^Settings that were not taken: .*azure_openai_api_key", said, re.MULTILINE)
    assert "distinctive-secret" not in said
    assert f"Read {folder}: steps 3, skills 4" in said
    assert f"{tmp_path}/bin/airflow dags trigger evaluate_searchqa --conf" in said
    assert f'evaluate_searchqa --conf \'{{"skill": "s3://{store.bucket}/{keys.best_skill}"}}\'' in said
    before = store.list_keys(keys.folder)
    assert run(Home.at(tmp_path), folder, settings=settings) == 0
    said = capsys.readouterr().out
    assert f"It was imported before: run {name}" in said
    assert "Checking the items" not in said
    assert store.list_keys(keys.folder) == before
    with pytest.raises(ConfigError, match=r"gradient\.minibatch_size = 8, now 4; data\.split_seed = 42, now 7; "):
        run(Home.at(tmp_path), folder, settings=[*settings, "data.split_seed=7", "gradient.minibatch_size=4"])
    assert "Checking the items" not in capsys.readouterr().out


def test_a_run_is_not_put_where_the_platforms_own_server_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, name = Home.at(tmp_path / "home"), "AIRFLOW_CONN_SKILLOPT_S3"
    home.write(replace(home.read_or_choose(), connections=(name,)))
    monkeypatch.delenv(name, raising=False)
    with pytest.raises(PlatformError, match=f"the last start had {name} from its shell, and this shell has not"):
        run(home, write(tmp_path / "my_run"))


@pytest.mark.parametrize(
    ("named", "mode"),
    [
        ({}, "split_dir"),
        ({"data.split_mode": "ratio"}, "ratio"),
        ({"data.split_mode": "manifest"}, "manifest"),
        ({"data.split_manifest": "y.json"}, "manifest"),
    ],
)
def test_a_split_that_the_user_names_comes_before_the_folders(tmp_path: Path, named: JsonObject, mode: str) -> None:
    by_list = {"data": {"split_mode": "manifest", "split_manifest": "x.json"}}
    (tmp_path / "splits").mkdir()
    reference = ReferenceRun(write(tmp_path / "my_run", split_dir=str(tmp_path / "splits")))
    taken = reference.overrides(TrainConfig.from_layers(by_list))
    assert TrainConfig.from_layers(by_list, nest(import_run.beneath(taken, named))).data.split_mode == mode


@pytest.mark.usefixtures("platform")
def test_a_run_may_have_more_epochs_than_the_benchmarks_graph(tmp_path: Path, store: ObjectStore) -> None:
    epochs = benchmark_config("searchqa").train.num_epochs + 4
    folder = write(tmp_path / "long_run", num_epochs=epochs)
    assert run(Home.at(tmp_path), folder, settings=[f"storage.bucket={store.bucket}"]) == 0
    record = store.get_model(RunKeys("", "searchqa", ReferenceRun(folder).name).config, RunRecord)
    assert record.config.train.num_epochs == epochs


@pytest.mark.usefixtures("platform")
def test_what_is_wrong_is_said_and_nothing_is_stored(tmp_path: Path, store: ObjectStore) -> None:
    before = store.list_keys("")
    folder = write(tmp_path / "my_run", env="chess")
    with pytest.raises(ConfigError, match=r"^benchmark chess: there is none of that name here, only .*BENCHMARK=NAME"):
        run(Home.at(tmp_path), folder)
    bucket = f"storage.bucket={store.bucket}"
    with pytest.raises(ConfigError, match="no such key"):
        run(Home.at(tmp_path), folder, "searchqa", [bucket, "data.url=x"])
    with pytest.raises(DataError, match="/nowhere does not exist"):
        run(Home.at(tmp_path), folder, "searchqa", [bucket, "data.uri=/nowhere/at/all"])
    (folder / "history.json").write_text("{")
    with pytest.raises(DataError, match=r"history\.json: not JSON"):
        run(Home.at(tmp_path), folder, "searchqa", [bucket])
    assert store.list_keys("") == before
