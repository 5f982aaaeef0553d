"""Pods on a Kubernetes cluster as a task's sandboxes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential,
)
from tenacity.nap import sleep_using_event

from skillopt_airflow.core.errors import EngineUnavailable, ImageMissing, SandboxError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.sandbox.docker.container import capped, identity, lines
from skillopt_airflow.sandbox.docker.limits import MAX_LOG_BYTES, MEGABYTE
from skillopt_airflow.sandbox.kubernetes.pod import (
    BASE,
    EXPIRES_LABEL,
    INSTALLATION_LABEL,
    START_SECONDS,
    WORKLOAD_LABEL,
    PodPlan,
    end_of,
    installation_label,
    labels_of,
    pod_manifest,
    secret_manifest,
    workload_label,
)
from skillopt_airflow.sandbox.kubernetes.remote_folder import address_seconds, shipped
from skillopt_airflow.sandbox.staging import ContainerFolder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from skillopt_airflow.core.values.types import Item, ModelCall
    from skillopt_airflow.sandbox.kubernetes.remote_folder import Exchanges
    from skillopt_airflow.sandbox.staging import Files, TaskFolder
    from skillopt_airflow.sandbox.task_workload import Corpus, Workload

POLL_SECONDS = 1.0
UNANSWERED_SECONDS = 300.0
"""For which a pod is left alone by a cluster that cannot say how it is."""
MAX_PAUSE = 15.0
GONE = 404
NOT_NOW = (429, 500, 502, 503, 504)
"""Statuses of a cluster that is overloaded or being replaced."""
ENDED = ("Succeeded", "Failed")
NO_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
PULLED_AGAIN = ("ErrImagePull", "ImagePullBackOff")
PULL_SECONDS = 120.0
"""For which a node may try to pull again, a few times by then: a registry may be away for a moment."""
STOPPED = "the task was stopped, and its pods removed"

BLOCK = 4096
"""Bytes of a file system's block."""

log = logging.getLogger(__name__)


@dataclass
class Pod:
    """A pod of the rollout program; `stopped` says that its task ends, so that it must not begin any more."""

    client: Any
    plan: PodPlan
    folder: ContainerFolder
    secrets: tuple[JsonObject, JsonObject]
    """For the gateway and for the courier."""
    stopped: threading.Event
    _made: bool = False

    def run(self, on_start: Callable[[], None]) -> str:
        """Run it to its end, and return why an item that has no row by then is unfinished.

        Raises:
            EngineUnavailable: the cluster does not answer.
            ImageMissing: an image cannot be pulled.
            SandboxError: the cluster refused the pod or found no node for it, or the task was stopped.
        """
        with reached(self.plan.namespace):
            try:
                if self.stopped.is_set():
                    raise SandboxError(STOPPED)
                self._make()
                return self._follow(on_start)
            finally:
                if self._made:
                    self._patiently(remove_pod, self.client, self.plan.namespace, self.plan.name)

    def kill(self) -> bool:
        if self._made:
            remove_pod(self.client, self.plan.namespace, self.plan.name, at_once=False)
        return self._made

    def _make(self) -> None:
        """Create the pod first: it waits for its Secret, and one without an owner would outlive a killed task."""
        plan, namespace = self.plan, self.plan.namespace
        made = self._patiently(_create, self.client.create_namespaced_pod, namespace, pod_manifest(plan))
        self._made = True
        pod = self._patiently(self.client.read_namespaced_pod, plan.name, namespace) if made is None else made
        secret = secret_manifest(plan, str(pod.metadata.uid), *self.secrets)
        self._patiently(_create, self.client.create_namespaced_secret, namespace, secret)

    def _follow(self, on_start: Callable[[], None]) -> str:
        started, latest = False, time.monotonic() + 2 * START_SECONDS
        refused: float | None = None
        while not self.stopped.is_set():
            status = self._status()
            if status is None:
                return "the pod was removed from outside"
            if status.get("phase") in ENDED:
                self._show_log()
                return end_of(status, self.plan.limits)
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
            pod = self._patiently(self.client.read_namespaced_pod, self.plan.name, self.plan.namespace)
        except ApiException as error:
            if error.status == GONE:
                return None
            raise
        status: Mapping[str, Any] = self.client.api_client.sanitize_for_serialization(pod.status)
        return status

    def _patiently(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Ask the cluster, and again for a while if it cannot answer now: the other pods would go with this one."""

        def tell(state: RetryCallState) -> None:
            error = None if state.outcome is None else state.outcome.exception()
            log.warning("Pod %s: the cluster cannot answer now (%s)", self.plan.name, getattr(error, "reason", error))

        return Retrying(
            retry=retry_if_exception(_passes),
            stop=stop_after_delay(UNANSWERED_SECONDS) | stop_when_event_set(self.stopped),
            wait=wait_exponential(POLL_SECONDS, max=MAX_PAUSE),
            sleep=sleep_using_event(self.stopped),
            before_sleep=tell,
            reraise=True,
        )(ask, *arguments)

    def _show_log(self) -> None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        limit = MAX_LOG_BYTES
        try:
            # The cluster stops a byte behind the limit, so that a longer log is known to be one.
            said = self.client.read_namespaced_pod_log(
                self.plan.name,
                self.plan.namespace,
                container=BASE,
                limit_bytes=limit + 1,
                _preload_content=False,
            )
        except (ApiException, HTTPError) as error:
            log.info("The pod has no log: %s", getattr(error, "reason", error))
            return
        for line in lines(capped([said.data], limit)):
            log.info("[sandbox] %s", line)


def _create(create: Callable[..., Any], namespace: str, manifest: JsonObject) -> Any:
    """Return what was created; None if it is there already, since the answer to a try before was lost."""
    from kubernetes.client.exceptions import ApiException

    try:
        return create(namespace, manifest)
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        return None


def clear_away(client: Any, namespace: str, same: str, installation: str) -> int:
    """Remove the pods that the label selector `same` finds, and expired ones of `installation`; return how many."""
    with reached(namespace):
        left = {pod.metadata.name for pod in client.list_namespaced_pod(namespace, label_selector=same).items}
        for pod in client.list_namespaced_pod(namespace, label_selector=installation).items:
            expires = (pod.metadata.labels or {}).get(EXPIRES_LABEL, "")
            if expires.isdecimal() and int(expires) < time.time():
                left.add(pod.metadata.name)
        for name in sorted(left):
            remove_pod(client, namespace, name)
    return len(left)


def remove_pod(client: Any, namespace: str, name: str, *, at_once: bool = True) -> None:
    """Remove it, and with it its Secret, unless someone else did."""
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
def reached(namespace: str) -> Iterator[None]:
    """Raise EngineUnavailable or SandboxError for errors of the cluster's client."""
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
        # Its text would repeat the request, the Secret's content included.
        if _passes(error):
            raise EngineUnavailable(
                f"the Kubernetes cluster cannot serve namespace {namespace} now: {error.status} {error.reason}"
            ) from None
        raise SandboxError(
            f"the Kubernetes cluster refused the sandbox in namespace {namespace}: {error.status} {error.reason}; see "
            "docs/kubernetes.md for the rights that a worker needs"
        ) from None


def _passes(error: BaseException) -> bool:
    """Return whether the cluster may answer the same request later."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    return isinstance(error, HTTPError) or (isinstance(error, ApiException) and error.status in NOT_NOW)


def _check_images(status: Mapping[str, Any], refused: float | None) -> float | None:
    """Return since when an image cannot be pulled, None if all can; raise ImageMissing if that lasts.

    Args:
        refused: what the look before returned.
    """
    now = time.monotonic()
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one, (one.get("state") or {}).get("waiting") or {}) for one in containers]
    missing = [(one, why) for one, why in waiting if why.get("reason") in NO_IMAGE]
    failed = [(one, why) for one, why in waiting if why.get("reason") in PULLED_AGAIN]
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
    said = [str(one.get("message")) for one in status.get("conditions") or () if one.get("message")]
    return "; ".join(said) or str(status.get("phase"))


@contextmanager
def opened_runtime(
    workload: Workload, folder: TaskFolder, attempt: int, exchanges: Exchanges, stopped: threading.Event
) -> Iterator[PodRuntime]:
    """Yield the runtime of the workload's cluster, after removing what killed tasks left there and in the store."""
    hook = KubernetesHook(conn_id=workload.limits.conn_id or KubernetesHook.default_conn_name)
    namespace = hook.get_namespace() or hook.DEFAULT_NAMESPACE
    with reached(namespace):
        client = hook.core_v1_client
    runtime = PodRuntime(client, namespace, workload, folder, attempt, exchanges, stopped)
    runtime.remove_all()
    exchanges(workload_label(identity(workload.labels))).clear()
    yield runtime


@dataclass
class PodRuntime:
    client: Any
    namespace: str
    workload: Workload
    folder: TaskFolder
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
        labels = labels_of(self._identity, time.time() + address_seconds(workload, len(items)))
        room = _room(workload.corpus) // MEGABYTE
        plan = PodPlan(name, self.namespace, workload.image, workload.limits, len(items), labels, room)
        with (
            self.folder.container(str(number), workload, items, files) as staged,
            shipped(workload, number, items, staged, exchange, self.at_once(), self._on_call) as (folder, secrets),
        ):
            yield Pod(self.client, plan, folder, secrets, self.stopped)

    def remove_all(self) -> None:
        same = f"{WORKLOAD_LABEL}={self._label}"
        installation = f"{INSTALLATION_LABEL}={installation_label(self._identity)}"
        left = clear_away(self.client, self.namespace, same, installation)
        if left:
            log.info("Removed %d pod(s) of this task, or of tasks that were killed", left)


def _room(corpus: Corpus | None) -> int:
    """Return the bytes on disk that a corpus takes, if there is one: whole blocks for each file and its folder."""
    if corpus is None:
        return 0
    return MEGABYTE + sum(file.size + 2 * BLOCK for file in corpus.manifest.files)
