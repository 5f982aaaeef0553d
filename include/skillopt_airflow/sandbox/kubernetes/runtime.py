"""Pods on a Kubernetes cluster as a task's sandboxes."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import tenacity
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

from skillopt_airflow.core.errors import EngineUnavailable, ImageMissing, SandboxError
from skillopt_airflow.core.values.types import Item, JsonObject, ModelCall
from skillopt_airflow.sandbox.docker.container import capped, identity, lines
from skillopt_airflow.sandbox.docker.limits import MAX_LOG_BYTES, MEGABYTE
from skillopt_airflow.sandbox.kubernetes.pod import (
    BASE,
    EXPIRES_LABEL,
    INSTALLATION_LABEL,
    START_SECONDS,
    WORKLOAD_LABEL,
    PodPlan,
    end_reason,
    installation_label,
    pod_labels,
    pod_manifest,
    secret_manifest,
    workload_label,
)
from skillopt_airflow.sandbox.kubernetes.remote_folder import Exchanges, Secrets, open_remote_folder, url_seconds
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, container_folder
from skillopt_airflow.sandbox.task_workload import Workload

POLL_SECONDS = 1.0
RETRY_SECONDS = 300.0
"""Time limit of a request's retries while the cluster doesn't respond; the pod keeps running."""
MAX_PAUSE = 15.0
GONE = 404
TEMPORARY = (429, 500, 502, 503, 504)
"""HTTP statuses of a cluster that is overloaded or being replaced."""
ENDED = ("Succeeded", "Failed")
NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
PULL_RETRIED = ("ErrImagePull", "ImagePullBackOff")
PULL_SECONDS = 120.0
"""Time limit of a node's attempts to pull, because a registry may fail briefly."""
STOPPED = "the task was stopped, and its pods were removed"

BLOCK_BYTES = 4096

log = logging.getLogger(__name__)


@dataclass
class Pod:
    """A pod of the rollout program; once `stopped` is set, it doesn't start any more."""

    client: Any
    plan: PodPlan
    folder: ContainerFolder
    secrets: Secrets
    stopped: threading.Event
    _made: bool = False

    def run(self, on_start: Callable[[], None]) -> str:
        """See `Sandbox.run`. Also raises EngineUnavailable if the cluster doesn't respond, and ImageMissing."""
        with cluster_errors(self.plan.namespace):
            try:
                if self.stopped.is_set():
                    raise SandboxError(STOPPED)
                self._make()
                return self._follow(on_start)
            finally:
                if self._made:
                    self._retry(remove_pod, self.client, self.plan.namespace, self.plan.name)

    def kill(self) -> bool:
        if self._made:
            remove_pod(self.client, self.plan.namespace, self.plan.name, at_once=False)
        return self._made

    def _make(self) -> None:
        """Create the pod first: it waits for its Secret, and one without an owner would outlive a killed task."""
        plan, namespace = self.plan, self.plan.namespace
        self._retry(_create, self.client.create_namespaced_pod, namespace, pod_manifest(plan))
        self._made = True
        pod = self._retry(self.client.read_namespaced_pod, plan.name, namespace)
        secret = secret_manifest(plan, str(pod.metadata.uid), *self.secrets)
        self._retry(_create, self.client.create_namespaced_secret, namespace, secret)

    def _follow(self, on_start: Callable[[], None]) -> str:
        started, latest = False, time.monotonic() + 2 * START_SECONDS
        refused: float | None = None
        while not self.stopped.is_set():
            status = self._status()
            if status is None:
                return "something else deleted the pod"
            if status.get("phase") in ENDED:
                self._show_log()
                return end_reason(status, self.plan.limits)
            if status.get("phase") == "Running" and not started:
                started = True
                on_start()
            if not started:
                refused = _check_images(status, refused)
                if time.monotonic() > latest:
                    raise SandboxError(f"the pod did not start within {2 * START_SECONDS} s: {_conditions(status)}")
            self.stopped.wait(POLL_SECONDS)
        raise SandboxError(STOPPED)

    def _status(self) -> Mapping[str, Any] | None:
        """Return the PodStatus as JSON, or None once the pod is gone."""
        from kubernetes.client.exceptions import ApiException

        try:
            pod = self._retry(self.client.read_namespaced_pod, self.plan.name, self.plan.namespace)
        except ApiException as error:
            if error.status == GONE:
                return None
            raise
        status: Mapping[str, Any] = self.client.api_client.sanitize_for_serialization(pod.status)
        return status

    def _retry(self, request: Callable[..., Any], *arguments: Any) -> Any:
        """Send a request to the cluster, with retries, because an error would also end the task's other pods."""

        def log_error(state: tenacity.RetryCallState) -> None:
            error = None if state.outcome is None else state.outcome.exception()
            log.warning("Pod %s: the cluster does not respond (%s)", self.plan.name, getattr(error, "reason", error))

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_temporary),
            stop=tenacity.stop_after_delay(RETRY_SECONDS) | tenacity.stop_when_event_set(self.stopped),
            wait=tenacity.wait_exponential(POLL_SECONDS, max=MAX_PAUSE),
            sleep=tenacity.sleep_using_event(self.stopped),
            before_sleep=log_error,
            reraise=True,
        )(request, *arguments)

    def _show_log(self) -> None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        # One byte above the limit, so that `capped` marks a longer log as truncated.
        options = {"container": BASE, "limit_bytes": MAX_LOG_BYTES + 1, "_preload_content": False}
        try:
            output = self.client.read_namespaced_pod_log(self.plan.name, self.plan.namespace, **options)
        except (ApiException, HTTPError) as error:
            log.info("The pod has no log: %s", getattr(error, "reason", error))
            return
        for line in lines(capped([output.data], MAX_LOG_BYTES)):
            log.info("[sandbox] %s", line)


def _create(create: Callable[..., Any], namespace: str, manifest: JsonObject) -> None:
    """Create an object, unless it already exists because the response to an earlier attempt was lost."""
    from kubernetes.client.exceptions import ApiException

    try:
        create(namespace, manifest)
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise


def remove_pod(client: Any, namespace: str, name: str, *, at_once: bool = True) -> None:
    """Remove a pod and its Secret, if they still exist."""
    from kubernetes.client.exceptions import ApiException

    removals: list[Callable[[], Any]] = [lambda: client.delete_namespaced_pod(name, namespace)]
    if at_once:
        removals = [
            lambda: client.delete_namespaced_pod(name, namespace, grace_period_seconds=0),
            lambda: client.delete_namespaced_secret(name, namespace),
        ]
    for remove in removals:
        try:
            remove()
        except ApiException as error:
            if error.status != GONE:
                raise


@contextmanager
def cluster_errors(namespace: str) -> Iterator[None]:
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (HTTPError, ConfigException) as error:
        raise EngineUnavailable(
            "no Kubernetes cluster answers: check the Airflow connection that sandbox.conn_id names, or "
            f"{KubernetesHook.default_conn_name} ({error})"
        ) from error
    except ApiException as error:
        # The error's message repeats the request, including the Secret's content.
        if _is_temporary(error):
            raise EngineUnavailable(
                f"the Kubernetes cluster cannot serve namespace {namespace} now: {error.status} {error.reason}"
            ) from None
        raise SandboxError(
            f"the Kubernetes cluster refused the sandbox in namespace {namespace}: {error.status} {error.reason}. See "
            "docs/kubernetes.md for the worker's permissions."
        ) from None


def _is_temporary(error: BaseException) -> bool:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    return isinstance(error, HTTPError) or (isinstance(error, ApiException) and error.status in TEMPORARY)


def _check_images(status: Mapping[str, Any], refused: float | None) -> float | None:
    """Return the time of an image's first failed pull, or None; raise ImageMissing after PULL_SECONDS.

    `refused` is the previous call's result.
    """
    now = time.monotonic()
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one, (one.get("state") or {}).get("waiting") or {}) for one in containers]
    missing = [(one, why) for one, why in waiting if why.get("reason") in NO_IMAGE]
    failed = [(one, why) for one, why in waiting if why.get("reason") in PULL_RETRIED]
    since = None if not failed else now if refused is None else refused
    if since is not None and now - since >= PULL_SECONDS:
        missing += failed
    for one, why in missing:
        raise ImageMissing(
            f"the cluster cannot pull {one.get('image')} for the container {one.get('name')}: {why['reason']} "
            f"{why.get('message', '')}; set sandbox.image and sandbox.registry to what it can pull"
        )
    return since


def _conditions(status: Mapping[str, Any]) -> str:
    messages = [str(one.get("message")) for one in status.get("conditions") or () if one.get("message")]
    return "; ".join(messages) or str(status.get("phase"))


@dataclass
class PodRuntime:
    client: Any
    namespace: str
    workload: Workload
    folder: Path
    attempt: int
    exchanges: Exchanges
    stopped: threading.Event

    def __post_init__(self) -> None:
        self._identity = identity(self.workload.labels)
        self._label = workload_label(self._identity)

    def at_once(self) -> int:
        return self.workload.settings.concurrency if self.workload.one_item_each else 1

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[None]:
        self._on_call = on_call
        return nullcontext()

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Pod]:
        workload = self.workload
        name = f"skillopt-{self._label}-{self.attempt}-{number}-{os.urandom(3).hex()}"
        exchange = self.exchanges(f"{self._label}/{name}")
        labels = pod_labels(self._identity, time.time() + url_seconds(workload, len(items)))
        corpus_mb = 0
        if workload.corpus is not None:
            # On disk, each file and its folder take whole blocks.
            corpus_mb = 1 + sum(file.size + 2 * BLOCK_BYTES for file in workload.corpus.manifest.files) // MEGABYTE
        plan = PodPlan(name, self.namespace, workload.image, workload.limits, len(items), labels, corpus_mb)
        with (
            container_folder(self.folder / str(number), workload, items, files) as staged,
            open_remote_folder(workload, number, items, staged, exchange, self.at_once(), self._on_call) as (
                folder,
                secrets,
            ),
        ):
            yield Pod(self.client, plan, folder, secrets, self.stopped)

    def remove_all(self) -> None:
        """Remove the pods of this task, and expired ones of this installation."""
        with cluster_errors(self.namespace):
            left = {pod.metadata.name for pod in self._pods(WORKLOAD_LABEL, self._label)}
            for pod in self._pods(INSTALLATION_LABEL, installation_label(self._identity)):
                expires = (pod.metadata.labels or {}).get(EXPIRES_LABEL, "")
                if expires.isdecimal() and int(expires) < time.time():
                    left.add(pod.metadata.name)
            for name in sorted(left):
                remove_pod(self.client, self.namespace, name)
        if left:
            log.info("Removed %d pods of this task or of killed tasks", len(left))

    def _pods(self, label: str, value: str) -> Any:
        return self.client.list_namespaced_pod(self.namespace, label_selector=f"{label}={value}").items


@contextmanager
def open_runtime(
    workload: Workload, folder: Path, attempt: int, exchanges: Exchanges, stopped: threading.Event
) -> Iterator[PodRuntime]:
    """Yield the runtime of the workload's cluster, after removing what killed tasks left there and in the store."""
    hook = KubernetesHook(conn_id=workload.limits.conn_id or KubernetesHook.default_conn_name)
    namespace = hook.get_namespace() or hook.DEFAULT_NAMESPACE
    with cluster_errors(namespace):
        client = hook.core_v1_client
    runtime = PodRuntime(client, namespace, workload, folder, attempt, exchanges, stopped)
    runtime.remove_all()
    exchanges(workload_label(identity(workload.labels))).clear()
    yield runtime
