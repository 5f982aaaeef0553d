"""The manifests of a sandbox's pod on a Kubernetes cluster.

One container of the pod runs the rollout program. Only the gateway and the courier have credentials: the model's key,
and signed URLs of single objects of the store.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.sandbox.docker.container import SANDBOX_LABEL
from skillopt_airflow.sandbox.docker.limits import CORPUS_FOLDER, TMP_MEGABYTES
from skillopt_airflow.sandbox.kubernetes.courier import CALLS_PATH, CONFIG
from skillopt_airflow.sandbox.staging import SANDBOX_UID

BASE = "rollout"
"""Name of the container that runs the rollout program."""
HELPER_UID = 10002
"""User of the gateway and the courier, different from the rollout program's."""
APP_LABEL = "app.kubernetes.io/name"
APP = "skillopt-sandbox"
"""Value of `APP_LABEL`, which the NetworkPolicy selects."""
WORKLOAD_LABEL = "skillopt/workload"
"""Label with the same value at every attempt of one task."""
INSTALLATION_LABEL = "skillopt/installation"
EXPIRES_LABEL = "skillopt/expires"
"""Unix time by which the pod's task has certainly ended it."""
START_SECONDS = 300
"""Timeout of a pod's wait for a node, and then again for its images."""
GRACE_SECONDS = 45
"""Timeout of the courier's last upload."""
HELPER_MB = 512
"""Memory of a gateway or courier."""
GATEWAY_CONFIG = "gateway.json"
SOCKET = "/gateway/model.sock"
MAX_LABEL = 63


@dataclass(frozen=True)
class PodPlan:
    name: str
    namespace: str
    image: str
    limits: SandboxGroup
    items: int
    labels: Mapping[str, str]
    corpus_mb: int = 0
    """Megabytes of the run's corpus on disk; 0 if it has none."""


def pod_manifest(plan: PodPlan) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": dict(plan.labels)},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": False,
            "hostPID": False,
            "hostIPC": False,
            "shareProcessNamespace": False,
            "activeDeadlineSeconds": deadline(plan.limits, plan.items),
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": SANDBOX_UID,
                "runAsGroup": SANDBOX_UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            # Kubernetes stops them in reverse order, so the courier sees the gateway's last calls.
            "initContainers": [_courier(plan), _gateway(plan), _fetch(plan)],
            "containers": [_rollout(plan)],
            "volumes": _volumes(plan),
        },
    }


def secret_manifest(plan: PodPlan, pod_uid: str, gateway: JsonObject, courier: JsonObject) -> JsonObject:
    """Return the Secret with the settings of gateway and courier. The pod owns it, so both are deleted together."""
    owner: JsonObject = {"apiVersion": "v1", "kind": "Pod", "name": plan.name, "uid": pod_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": dict(plan.labels),
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {GATEWAY_CONFIG: json.dumps(gateway), CONFIG: json.dumps(courier)},
    }


def deadline(limits: SandboxGroup, items: int) -> int:
    return items * limits.timeout + START_SECONDS + GRACE_SECONDS


def gateway_command(*options: str) -> list[str]:
    """Return the command of a gateway that listens at SOCKET; without --config, it reads standard input."""
    serve = " ".join(["exec python3 -m skillopt_airflow.gateway.serve --listen", f"unix:{SOCKET}", *options])
    return ["sh", "-c", f"{serve} >> {CALLS_PATH}"]


def courier_command(*arguments: str) -> list[str]:
    return ["python3", "-m", "skillopt_airflow.sandbox.kubernetes.courier", *arguments]


def courier_megabytes(limits: SandboxGroup) -> int:
    # It packs the outputs in memory, in addition to the largest file.
    return HELPER_MB + 2 * limits.output_mb


def pod_labels(identity: Mapping[str, str], expires: float) -> dict[str, str]:
    """Return the pod's labels, shortened and without characters that Kubernetes rejects."""
    labels = {f"skillopt/{name.removeprefix('skillopt.')}": _label(value) for name, value in identity.items()}
    return labels | {
        APP_LABEL: APP,
        WORKLOAD_LABEL: workload_label(identity),
        INSTALLATION_LABEL: installation_label(identity),
        EXPIRES_LABEL: str(round(expires)),
    }


def workload_label(identity: Mapping[str, str]) -> str:
    return _digest("\0".join(f"{name}={identity[name]}" for name in sorted(identity)))


def installation_label(identity: Mapping[str, str]) -> str:
    return _digest(identity[SANDBOX_LABEL])


def end_reason(status: Mapping[str, Any], limits: SandboxGroup) -> str:
    """Return the reason why a pod's items are unfinished, from its PodStatus as JSON."""
    if status.get("reason") == "Evicted":
        return f"the pod was evicted (sandbox.output_mb = {limits.output_mb}): {status.get('message', '')}"
    if status.get("reason") == "DeadlineExceeded":
        return "the pod was stopped: its deadline had passed"
    fetch = _terminated(status.get("initContainerStatuses"), "fetch")
    if fetch.get("exitCode"):
        return f"the pod could not fetch its inputs: exit status {fetch['exitCode']}"
    ended = _terminated(status.get("containerStatuses"), BASE)
    if ended.get("reason") == "OOMKilled":
        return f"the container ran out of memory (sandbox.memory = {limits.memory})"
    if not ended:
        reason = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
        return f"the pod ended before its container did: {reason or 'the cluster gives no reason'}"
    return f"the container ended with exit status {ended['exitCode']} before it finished the item"


def require_digest(image: str) -> str:
    """Return the image. Raises ConfigError if its name has a tag, which can later refer to another image."""
    if "@sha256:" not in image:
        raise ConfigError(
            f"sandbox.image = {image!r}: on Kubernetes the image needs a digest, which the worker cannot get from the "
            "cluster. Set it, such as registry/skillopt-sandbox@sha256:..."
        )
    return image


def _terminated(statuses: Sequence[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    """Return the `terminated` state of the container with this name; empty if it hasn't ended."""
    states = [one.get("state") or {} for one in statuses or () if one.get("name") == name]
    state: Mapping[str, Any] = next((state["terminated"] for state in states if state.get("terminated")), {})
    return state


def _rollout(plan: PodPlan) -> JsonObject:
    limits = plan.limits
    return {
        "name": BASE,
        "image": plan.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["/in", "/out", "--gateway", SOCKET, *(["--corpus", CORPUS_FOLDER] if plan.corpus_mb else [])],
        # Kubernetes spells 512m and 4g as 512Mi and 4Gi.
        "resources": _resources(
            f"{limits.cpus:g}", f"{limits.memory.upper()}i", limits.output_mb + TMP_MEGABYTES, plan.corpus_mb
        ),
        "securityContext": _restricted(SANDBOX_UID),
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            _mount("in", "/in", read_only=True),
            _mount("out", "/out"),
            _mount("gateway", "/gateway", read_only=True),
            _mount("tmp", "/tmp"),  # noqa: S108
            *_corpus_mount(plan, read_only=True),
        ],
    }


def _gateway(plan: PodPlan) -> JsonObject:
    mounts = [_mount("gateway", "/gateway"), _mount("calls", "/calls"), _mount("gateway-tmp", "/tmp")]  # noqa: S108
    return {
        **_helper(plan, "gateway", gateway_command("--config", f"/secret/{GATEWAY_CONFIG}"), mounts, GATEWAY_CONFIG),
        "restartPolicy": "Always",
        # The next container only starts once the gateway listens.
        "startupProbe": {"exec": {"command": ["test", "-S", SOCKET]}, "periodSeconds": 1, "failureThreshold": 60},
    }


def _courier(plan: PodPlan) -> JsonObject:
    mounts = [_mount("out", "/out", read_only=True), _mount("calls", "/calls", read_only=True)]
    command = courier_command("deliver", f"/secret/{CONFIG}", "/out", CALLS_PATH)
    courier = _helper(plan, "courier", command, mounts, CONFIG)
    courier["resources"]["limits"]["memory"] = f"{courier_megabytes(plan.limits)}Mi"
    return {**courier, "restartPolicy": "Always"}


def _fetch(plan: PodPlan) -> JsonObject:
    mounts = [_mount("in", "/in"), _mount("out", "/out"), *_corpus_mount(plan)]
    folders = ["/in", "/out", *([CORPUS_FOLDER] if plan.corpus_mb else [])]
    command = courier_command("fetch", f"/secret/{CONFIG}", *folders)
    return _helper(plan, "fetch", command, mounts, CONFIG, plan.corpus_mb)


def _corpus_mount(plan: PodPlan, *, read_only: bool = False) -> list[JsonObject]:
    return [_mount("corpus", CORPUS_FOLDER, read_only=read_only)] if plan.corpus_mb else []


def _helper(
    plan: PodPlan, name: str, command: Sequence[str], mounts: Sequence[JsonObject], secret: str, corpus_mb: int = 0
) -> dict[str, Any]:
    """Return a container of this project's own program, with its one file of the Secret."""
    image = plan.limits.gateway_image
    own: JsonObject = {"name": "secret", "mountPath": f"/secret/{secret}", "subPath": secret, "readOnly": True}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Always" if plan.limits.renews(image) else "IfNotPresent",
        "command": list(command),
        "resources": _resources("1", f"{HELPER_MB}Mi", plan.limits.output_mb + TMP_MEGABYTES, corpus_mb),
        "securityContext": _restricted(HELPER_UID),
        "volumeMounts": [*mounts, own],
    }


def _volumes(plan: PodPlan) -> list[Any]:
    tmp: JsonObject = {"medium": "Memory", "sizeLimit": f"{TMP_MEGABYTES}Mi"}
    corpus = [{"name": "corpus", "emptyDir": {"sizeLimit": f"{plan.corpus_mb}Mi"}}] if plan.corpus_mb else []
    return [
        {"name": "in", "emptyDir": {"sizeLimit": "1Gi"}},
        *corpus,
        {"name": "out", "emptyDir": {"sizeLimit": f"{plan.limits.output_mb}Mi"}},
        {"name": "gateway", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "calls", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "tmp", "emptyDir": tmp},
        {"name": "gateway-tmp", "emptyDir": tmp},
        # Only gateway and courier mount it, one file each.
        {"name": "secret", "secret": {"secretName": plan.name, "defaultMode": 0o444}},
    ]


def _resources(cpu: str, memory: str, storage_mb: int, corpus_mb: int) -> JsonObject:
    # A node without room for the corpus would evict the pod.
    return {
        "requests": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": f"{16 + corpus_mb}Mi"},
        "limits": {"cpu": cpu, "memory": memory, "ephemeral-storage": f"{storage_mb + corpus_mb}Mi"},
    }


def _restricted(user: int) -> JsonObject:
    """Return the security context of Kubernetes' standard `restricted`, plus a read-only root filesystem."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _mount(volume: str, path: str, *, read_only: bool = False) -> JsonObject:
    return {"name": volume, "mountPath": path, "readOnly": read_only}


def _label(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", value)[:MAX_LABEL].strip("-_.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
