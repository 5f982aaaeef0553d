from contextlib import nullcontext
from pathlib import Path

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline.tasks import airflow_connections
from skillopt_airflow.pipeline.tasks import airflow_connections as many_hosts
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from skillopt_airflow.training.run.run_record import RunRecord
from tests.training.in_process import InProcessConnections

EXECUTOR = "AIRFLOW__CORE__EXECUTOR"


@pytest.fixture(autouse=True)
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTOR, "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_S3", "aws://key:secret@/?region_name=us-east-1")


@pytest.mark.parametrize(
    ("executor", "is_spread"),
    [
        ("LocalExecutor", False),
        ("LocalExecutor;team_a=LocalExecutor", False),
        ("CeleryExecutor;team_a=LocalExecutor", True),
        ("LocalExecutor,KubernetesExecutor", True),
        ("airflow.providers.celery.executors.celery_executor.CeleryExecutor", True),
    ],
)
def test_which_executors_have_several_hosts(monkeypatch: pytest.MonkeyPatch, executor: str, is_spread: bool) -> None:
    monkeypatch.setenv(EXECUTOR, executor)
    assert many_hosts.is_spread() is is_spread
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
    assert many_hosts.is_spread()


def config(**knobs: object) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


@pytest.mark.parametrize("key", ["data__uri", "data__corpus", "regate__fresh_uri"])
def test_data_of_one_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str) -> None:
    for everywhere in ("s3://bucket/data", "sample", str(benchmarks.folder("searchqa") / "sample")):
        many_hosts.check_data("searchqa", config(**{key: everywhere}))
    for address in ("/srv/data", "file:///srv/data", "../officeqa/sample"):
        with pytest.raises(ConfigError, match=f"^{key.replace('__', '.')} = {address}"):
            many_hosts.check_data("searchqa", config(**{key: address}))
    (tmp_path / "deployment.yaml").write_text("shared_folders: [/srv/*]")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    many_hosts.check_data("searchqa", config(**{key: "/srv/data"}))
    monkeypatch.setenv(EXECUTOR, "LocalExecutor")
    many_hosts.check_data("searchqa", config(**{key: "/other"}))


def test_an_image_that_one_engine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    many_hosts.check_image(config(), "registry/skillopt-sandbox@sha256:1f")
    with pytest.raises(ConfigError, match=r"skillopt-sandbox:latest has no digest"):
        many_hosts.check_image(config(), "sha256:1f")
    # All workers ask the same engine.
    many_hosts.check_image(config(sandbox__conn_id="engine"), "sha256:1f")
    monkeypatch.setenv(EXECUTOR, "LocalExecutor")
    many_hosts.check_image(config(), "sha256:1f")


def test_a_reference_by_hand_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The DAG of an epoch takes its run from the conf, which may be anybody's."""
    monkeypatch.delenv(VARIABLE)
    reference = {"benchmark": "searchqa", "run": "one", "storage": {}}
    open_run(reference)
    with pytest.raises(ConfigError, match=r"storage.bucket and storage.prefix = 's3://theirs/'"):
        open_run({**reference, "storage": {"bucket": "theirs"}})
    with pytest.raises(ConfigError, match=r"model.target_conn_id = 'theirs'"):
        open_run({**reference, "overrides": {"model.target_conn_id": "theirs"}})


def test_the_record_of_a_run_in_a_place_that_it_may_name_is_not_believed_about_connections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "deployment.yaml").write_text("allowed: {storage: ['s3://shared/*']}")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    connections = InProcessConnections()
    monkeypatch.setattr(airflow_connections, "AirflowConnections", lambda: connections)
    reference = {"benchmark": "searchqa", "run": "one", "storage": {"bucket": "shared"}}
    run = open_run(reference)
    for conn_id, refused in (("skillopt_target", False), ("theirs", True)):
        own = config(storage__bucket="shared", model__target_conn_id=conn_id)
        record = RunRecord(
            benchmark="searchqa", run="one", created="", config=own, image="", program="", steps_in_epoch=1, prices={}
        )
        run.store.put_model(run.keys.config, record)
        with pytest.raises(ConfigError, match=r"model.target_conn_id = 'theirs'") if refused else nullcontext():
            open_run(reference)


@pytest.mark.parametrize(
    ("path", "value"), [("sandbox.timeout", 86_400), ("publishing.approvers", ["me"]), ("sandbox.memory", "500g")]
)
def test_a_reference_by_hand_raises_no_limit_and_brings_no_prices(path: str, value: object) -> None:
    reference = {"benchmark": "searchqa", "run": "one", "storage": {}, "epoch": 1, "prices": {"target": None}}
    assert open_run(reference).ref.prices is None
    with pytest.raises(ConfigError, match=path):
        open_run({**reference, "overrides": {path: value}})
