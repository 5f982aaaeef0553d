"""The files for installations elsewhere: valid, no secret in them, and with no more rights than a run needs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE, benchmark_config
from tests.sandbox.fake_cluster import VERSION

PROJECT = Path(__file__).parents[1]
MANIFESTS = [*yaml.safe_load_all((PROJECT / "docker/kubernetes.yaml").read_text(encoding="utf-8"))]
VALUES = yaml.safe_load((PROJECT / "docker/helm-values.yaml").read_text(encoding="utf-8"))
COMPOSE = yaml.safe_load((PROJECT / "docker/compose.yaml").read_text(encoding="utf-8"))
PAGE = (PROJECT / "docs/kubernetes.md").read_text(encoding="utf-8")


def manifest(kind: str) -> dict[str, Any]:
    [found] = [one for one in MANIFESTS if one["kind"] == kind]
    return dict(found)


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda document: document["kind"])
def test_the_manifests_are_valid(document: Mapping[str, Any]) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_role_is_that_of_the_page_and_of_the_workers() -> None:
    told = [yaml.safe_load(block) for block in re.findall(r" *```yaml\n(.*?) *```", PAGE, re.DOTALL)]
    assert manifest("Role") in told
    account, binding = manifest("ServiceAccount")["metadata"], manifest("RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["metadata"]["namespace"] == manifest("Role")["metadata"]["namespace"]
    assert binding["roleRef"]["name"] == manifest("Role")["metadata"]["name"]
    assert VALUES["workers"]["celery"]["serviceAccount"] == {"create": False, "name": account["name"]}
    assert VALUES["allowPodLaunching"] is False


def test_what_the_values_put_into_pods_is_valid() -> None:
    container = {
        "name": "worker",
        "image": "{repository}:{tag}".format(**VALUES["images"]["airflow"]),
        "env": yaml.safe_load(VALUES["extraEnv"]),
        "envFrom": yaml.safe_load(VALUES["extraEnvFrom"]),
        "volumeMounts": VALUES["volumeMounts"],
    }
    spec = {"containers": [container], "volumes": VALUES["volumes"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, "spec": spec}
    kubernetes_validate.validate(pod, VERSION, strict=True)
    mapped = {volume["configMap"]["name"] for volume in VALUES["volumes"]}
    assert mapped == VALUES["extraConfigMaps"].keys()


def test_the_administrators_file_in_the_values_has_runs_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [data] = [one["data"] for one in VALUES["extraConfigMaps"].values()]
    [(name, text)] = yaml.safe_load(data).items()
    (tmp_path / name).write_text(text)
    variables = {one["name"]: one["value"] for one in yaml.safe_load(VALUES["extraEnv"])}
    assert variables[VARIABLE] == f"{VALUES['volumeMounts'][0]['mountPath']}/{name}"
    monkeypatch.setenv(VARIABLE, str(tmp_path / name))
    config: TrainConfig = benchmark_config("searchqa")
    assert config.sandbox.engine == "kubernetes"
    assert config.sandbox.conn_id is None
    connection = json.loads(variables["AIRFLOW_CONN_KUBERNETES_DEFAULT"])
    assert connection["extra"]["namespace"] == manifest("Namespace")["metadata"]["name"]


def test_secrets_are_named_and_none_is_there() -> None:
    text = (PROJECT / "docker/helm-values.yaml").read_text(encoding="utf-8")
    assert {VALUES["data"][key] for key in ("metadataSecretName", "brokerUrlSecretName")} == {
        "skillopt-database",
        "skillopt-broker",
    }
    assert not re.search(r"(?i)(password|secret_?key|token):", text)
    for name in ("skillopt-database", "skillopt-broker", "skillopt-connections"):
        assert f"create secret generic {name}" in PAGE


def test_compose_has_all_of_airflow_with_three_equal_workers() -> None:
    services = COMPOSE["services"]
    workers = [services[f"worker-{number}"] for number in (1, 2, 3)]
    assert [worker.pop("hostname") for worker in workers] == ["worker-1", "worker-2", "worker-3"]
    assert workers[0] == workers[1] == workers[2]
    airflow = {name: one for name, one in services.items() if one["image"].startswith("${AIRFLOW_IMAGE:-")}
    parts = {"migrate", "api-server", "scheduler", "dag-processor", "triggerer", "worker-1", "worker-2", "worker-3"}
    assert airflow.keys() == parts
    # The engine's socket, which makes its holder root, has nobody but the workers.
    assert {name for name, one in services.items() if "docker.sock" in str(one.get("volumes"))} == {
        "worker-1",
        "worker-2",
        "worker-3",
    }
    assert services.keys() - airflow.keys() == {"database", "broker"}


def test_compose_has_its_secrets_from_files_that_the_page_lists() -> None:
    told = (PROJECT / "docs/hosts.md").read_text(encoding="utf-8")
    files = {file for one in COMPOSE["services"].values() for file in one["env_file"]}
    assert files == {"airflow.env", "stores.env"}
    for file in files:
        assert f"`{file}`" in told
        assert f"docker/{file}" in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for one in COMPOSE["services"].values():
        assert not [
            name for name in one.get("environment", ()) if re.search("KEY|SECRET|PASSWORD|ALCHEMY|BROKER_URL", name)
        ]


def test_the_administrators_file_of_compose_has_all_workers_use_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(PROJECT / "docker/deployment.yaml"))
    name = benchmark_config("searchqa").sandbox.conn_id
    worker = COMPOSE["services"]["worker-1"]
    assert f"AIRFLOW_CONN_{str(name).upper()}" in worker["environment"]
    # The engine mounts what tasks make there.
    folder = worker["environment"]["TMPDIR"]
    assert f"{folder}:{folder}" in worker["volumes"]
