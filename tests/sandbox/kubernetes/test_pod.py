"""The manifests against Kubernetes' own schema, and every field that closes a pod."""

import json
import re
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.sandbox.kubernetes.network_policy import network_policy
from skillopt_airflow.sandbox.kubernetes.pod import (
    PodPlan,
    deadline,
    end_reason,
    installation_label,
    pod_labels,
    pod_manifest,
    require_digest,
    secret_manifest,
    workload_label,
)

VERSION = "1.33"
IMAGE = "registry.example/skillopt-sandbox@sha256:" + "0" * 64
IDENTITY = {
    "skillopt.sandbox": "/srv/air flow",
    "skillopt.run": "manual__2026-11-21T10:00:00+00:00",
    "skillopt.step": "3",
}


def plan(**limits: Any) -> PodPlan:
    labels = pod_labels(IDENTITY, 2_000_000_000.0)
    return PodPlan("skillopt-1", "skills", IMAGE, SandboxGroup(**limits), 3, labels)


def test_only_a_pod_with_a_corpus_has_room_for_one():
    without, having = pod_manifest(plan()), pod_manifest(replace(plan(), corpus_mb=1500))
    kubernetes_validate.validate(having, VERSION, strict=True)
    assert "corpus" not in json.dumps(without)
    assert {"name": "corpus", "emptyDir": {"sizeLimit": "1500Mi"}} in having["spec"]["volumes"]
    seen = {name: mounts(container).get("/corpus") for name, container in containers(having).items()}
    assert seen == {"courier": None, "gateway": None, "fetch": False, "rollout": True}
    storage = {name: one["resources"]["limits"]["ephemeral-storage"] for name, one in containers(having).items()}
    assert storage == {"courier": "320Mi", "gateway": "320Mi", "fetch": "1820Mi", "rollout": "1820Mi"}


def test_the_gateway_comes_from_the_registry_of_the_projects_own_images():
    images = {name: one["image"] for name, one in containers(pod_manifest(plan(registry="there/skillopt"))).items()}
    own = "there/skillopt/skillopt-gateway:latest"
    assert images == {"courier": own, "gateway": own, "fetch": own, "rollout": IMAGE}
    for registry, pulled in ((None, "IfNotPresent"), ("there/skillopt", "Always")):
        policies = {
            name: one["imagePullPolicy"] for name, one in containers(pod_manifest(plan(registry=registry))).items()
        }
        assert policies == dict.fromkeys(("courier", "gateway", "fetch"), pulled) | {"rollout": "IfNotPresent"}


def containers(pod: Any) -> dict[str, Any]:
    return {one["name"]: one for one in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]}


def mounts(container: Any) -> dict[str, bool]:
    """Whether it is read-only, by path."""
    return {mount["mountPath"]: mount["readOnly"] for mount in container["volumeMounts"]}


def test_all_manifests_keep_to_the_schema():
    pods = [pod_manifest(plan(**limits)) for limits in ({}, {"memory": "2g", "cpus": 0.5})]
    secret = secret_manifest(plan(), "uid", {"a": 1}, {"b": 2})
    for manifest in (*pods, secret, network_policy("skills", ["192.0.2.1/32:443"])):
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_every_container_is_restricted_and_the_pod_has_nothing_of_cluster_or_node():
    for name, container in containers(pod_manifest(plan())).items():
        assert container["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 10001 if name == "rollout" else 10002,
            "runAsGroup": 10001 if name == "rollout" else 10002,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }, name
        assert container["resources"]["limits"].keys() == {"cpu", "memory", "ephemeral-storage"}, name
    spec: Any = pod_manifest(plan())["spec"]
    closed = ("automountServiceAccountToken", "enableServiceLinks", "shareProcessNamespace")
    assert [spec[name] for name in (*closed, "hostNetwork", "hostPID", "hostIPC")] == [False] * 6
    assert spec["restartPolicy"] == "Never"
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} == {"emptyDir", "secret"}
    assert all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume)


def test_only_the_helpers_see_the_secret_and_each_its_own_file():
    of = containers(pod_manifest(plan()))
    assert mounts(of["rollout"]) == {"/in": True, "/out": False, "/gateway": True, "/tmp": False}
    assert of["rollout"].keys().isdisjoint({"env", "envFrom", "command"})
    secrets = {name: [path for path in mounts(one) if path.startswith("/secret")] for name, one in of.items()}
    assert secrets == {
        "rollout": [],
        "gateway": ["/secret/gateway.json"],
        "courier": ["/secret/courier.json"],
        "fetch": ["/secret/courier.json"],
    }
    assert mounts(of["courier"])["/out"] is True
    secret: Any = secret_manifest(plan(), "uid-1", {"upstream": {"api_key": "k"}}, {})
    assert json.loads(secret["stringData"]["gateway.json"]) == {"upstream": {"api_key": "k"}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "skillopt-1", "uid": "uid-1"}
    assert secret["metadata"]["ownerReferences"] == [owner]


def test_the_limits_are_those_of_the_configuration_and_helpers_stay_to_the_end():
    spec: Any = pod_manifest(plan(cpus=0.5, memory="300m", output_mb=8, timeout=60))["spec"]
    (rollout,) = spec["containers"]
    assert rollout["resources"]["limits"] == {"cpu": "0.5", "memory": "300Mi", "ephemeral-storage": "72Mi"}
    courier = next(one for one in spec["initContainers"] if one["name"] == "courier")
    assert courier["resources"]["limits"]["memory"] == "528Mi"
    sizes = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"] if "emptyDir" in volume}
    assert sizes["out"] == "8Mi"
    assert spec["activeDeadlineSeconds"] == deadline(SandboxGroup(timeout=60), 3) > 3 * 60
    # Kubernetes stops sidecars in the opposite order, so the courier stays longest.
    order = [(one["name"], one.get("restartPolicy")) for one in spec["initContainers"]]
    assert order == [("courier", "Always"), ("gateway", "Always"), ("fetch", None)]


def test_labels_tell_run_and_step_and_fit():
    labels = pod_labels(IDENTITY | {"skillopt.moment": "steps/" + "x" * 100}, 5.4)
    assert labels["skillopt/run"] == "manual__2026-11-21T10-00-00-00-00"
    assert labels["skillopt/step"] == "3"
    assert labels["skillopt/expires"] == "5"
    assert all(len(value) <= 63 for value in labels.values())
    other = IDENTITY | {"skillopt.step": "4"}
    assert workload_label(IDENTITY) != workload_label(other)
    assert installation_label(IDENTITY) == installation_label(other)


def ended(kind: str, name: str, **terminated: Any) -> dict[str, Any]:
    return {f"{kind}Statuses": [{"name": name, "state": {"terminated": terminated}}]}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"reason": "Evicted", "message": "ephemeral"}, r"evicted \(sandbox\.output_mb = 256\): ephemeral"),
        ({"reason": "DeadlineExceeded"}, "deadline"),
        (ended("initContainer", "fetch", exitCode=1), "inputs: exit status 1"),
        (ended("container", "rollout", reason="OOMKilled"), r"sandbox\.memory = 512m"),
        (ended("container", "rollout", exitCode=7), "exit status 7"),
        ({}, "no reason"),
        ({"reason": "NodeLost", "message": "node n1 is gone"}, "NodeLost: node n1 is gone"),
    ],
)
def test_the_end_of_a_pod_is_told(status, why):
    assert re.search(why, end_reason(status, SandboxGroup()))


def test_an_image_behind_a_tag_is_refused():
    assert require_digest(IMAGE) == IMAGE
    with pytest.raises(ConfigError, match="skillopt-sandbox:latest"):
        require_digest("skillopt-sandbox:latest")


def test_the_policy_lets_nothing_in_and_names_alone_out():
    spec: Any = network_policy("skills", ["192.0.2.1/32:443", "198.51.100.0/24:9000"])["spec"]
    assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "skillopt-sandbox"}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == []
    dns, *others = spec["egress"]
    assert {(port["protocol"], port["port"]) for port in dns["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert dns["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
    assert [(rule["to"][0]["ipBlock"]["cidr"], rule["ports"][0]["port"]) for rule in others] == [
        ("192.0.2.1/32", 443),
        ("198.51.100.0/24", 9000),
    ]
    for text in ("api.example.com:443", "192.0.2.1/32", "192.0.2.1/32:0", "0.0.0.0/0:443"):
        with pytest.raises(ConfigError, match=re.escape(text)):
            network_policy("skills", [text])
