"""The Airflow operator that runs the items of one workload in pods; the twin of `skillopt_airflow.sandbox.operator`."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from skillopt_airflow.sandbox.cluster import Pod, clear_away, reached
from skillopt_airflow.sandbox.docker_limits import MEGABYTE
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.pod import (
    INSTALLATION_LABEL,
    START_SECONDS,
    WORKLOAD_LABEL,
    PodPlan,
    deadline,
    installation_label,
    labels_of,
    workload_label,
)
from skillopt_airflow.sandbox.pod_exchange import INPUTS, Exchange, PodFolder, packed, transfer_config
from skillopt_airflow.sandbox.staging import TaskFolder, staged
from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload
from skillopt_airflow.sandbox.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from airflow.sdk import Context
    from pydantic import JsonValue

    from skillopt_airflow.core.types import Item, JsonObject
    from skillopt_airflow.sandbox.watcher import Watch


class PodRolloutOperator(KubernetesPodOperator):
    """Runs a workload's open items in pods; a subclass says which, and what the task returns.

    The contract is that of `RolloutOperator`: a pod that dies is told of by sandbox_error rows, not by a failed task.

    KubernetesPodOperator gives the hook, the client and the templated arguments. Its `execute` makes one pod an
    operator, shows whatever the pod says, and fails the task when the pod fails, so the pods are
    `skillopt_airflow.sandbox.cluster.Pod` instead.

    Cluster, namespace and images are those of the workload's limits.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(deferrable=False, **kwargs)
        self._identity: dict[str, str] = {}
        self._stopped = threading.Event()

    @abstractmethod
    def workload(self, context: Context) -> Workload:
        """The items that have no stored row yet, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """What the task returns; called after the last row was recorded."""

    @abstractmethod
    def exchange(self, name: str) -> Exchange:
        """A folder of the store for a workload or, inside of it, a pod; a name may have slashes."""

    @abstractmethod
    def gateway_document(self, workload: Workload) -> JsonObject:
        """What the gateway's program reads, `skillopt_airflow.gateway.serve.Served`, with its secrets."""

    def execute(self, context: Context) -> Any:
        """Run what is open and still matters, record rows while it runs, and return `result`.

        Raises:
            EngineUnavailable: no cluster answers, or it went away.
            ImageMissing: an image cannot be pulled.
            SandboxError: the cluster refused a pod or found no node for it, or the task was stopped.
        """
        workload = self.workload(context)
        if not workload.items:
            self.log.info("Every item has a stored row; no pod is needed")
            return self.result(workload, SandboxSeconds(wall=0.0, model=0.0))
        if workload.settled():
            self.log.info("All %d open items were left out: no win is possible any more", len(workload.items))
            return self.result(workload, SandboxSeconds(wall=0.0, model=0.0))
        attempt = context["ti"].try_number if "ti" in context else 1
        return self.result(workload, self._run(workload, attempt))

    def on_kill(self) -> None:
        """Remove the pods at once: they have nothing to save, and a supervisor waits only seconds."""
        self._stopped.set()
        if self._identity:
            self._clear_away()

    def _run(self, workload: Workload, attempt: int) -> SandboxSeconds:
        clock = time.monotonic()
        left = self._prepare_cluster(workload)
        if left:
            self.log.warning("Removed %d pod(s) that killed tasks left behind", left)
        self.exchange(workload_label(self._identity)).clear()
        watcher = Watcher(workload, self._stopped)
        with staged() as folder:
            watcher.start()
            try:
                try:
                    self._run_pods(workload, folder, watcher, attempt)
                finally:
                    watcher.stop()
            finally:
                watcher.finish()
        return SandboxSeconds(wall=time.monotonic() - clock, model=watcher.model_seconds)

    def _run_pods(self, workload: Workload, folder: TaskFolder, watcher: Watcher, attempt: int) -> None:
        """Every open item, each in a pod of its own, as many at the same time as items may be, or all in one."""
        reading = threading.Lock()

        def run_one(number: int, items: Sequence[Item]) -> None:
            if watcher.is_over():
                return
            with reading:
                files = [workload.files(item) for item in items]
            with folder.container(str(number), workload, items, files) as local:
                self._run_pod(f"{attempt}-{number}", workload, items, local.folder, watcher)

        with ThreadPoolExecutor(workload.settings.concurrency, thread_name_prefix="pod") as pool:
            try:
                for wave in watcher.waves():
                    running = [pool.submit(run_one, number, items) for number, items in wave]
                    for future in wait(running, return_when=FIRST_EXCEPTION).done:
                        future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                self._clear_away()
                raise

    def _run_pod(self, number: str, workload: Workload, items: Sequence[Item], folder: Path, watcher: Watcher) -> None:
        """One pod, from its inputs to its last row."""
        limits = workload.limits
        name = f"skillopt-{workload_label(self._identity)}-{number}-{os.urandom(3).hex()}"
        exchange, most = self.exchange(f"{workload_label(self._identity)}/{name}"), limits.output_mb * MEGABYTE
        stage = PodFolder(folder, exchange, len(items), most, watcher.on_call)
        exchange.put(INPUTS, packed(stage.inputs))
        plan = PodPlan(
            name=name,
            image=workload.image,
            limits=limits,
            labels=labels_of(self._identity, time.time() + deadline(limits) + START_SECONDS),
        )
        courier = transfer_config(exchange, len(items), most, deadline(limits) + START_SECONDS)
        pod = Pod(self.client, plan, self.gateway_document(workload), courier.model_dump(mode="json"))
        followed: list[Watch] = []
        why = ""
        try:
            why = pod.run(lambda: followed.append(watcher.watch(items, stage, pod.kill)), self._stopped)
        finally:
            stage.ended = True
            for watch in followed or [watcher.watch(items, stage, pod.kill)]:
                watcher.end(watch, why)
            exchange.clear()

    def _prepare_cluster(self, workload: Workload) -> int:
        """Turn to the workload's cluster, and clear away what killed tasks left behind; how many pods."""
        self.kubernetes_conn_id = workload.limits.kubernetes_conn_id
        self.namespace = workload.limits.namespace
        self._identity = identity(workload.labels)
        return self._clear_away()

    def _clear_away(self) -> int:
        with reached(str(self.namespace)):
            client = self.client
        same = f"{WORKLOAD_LABEL}={workload_label(self._identity)}"
        installation = f"{INSTALLATION_LABEL}={installation_label(self._identity)}"
        return clear_away(client, str(self.namespace), same, installation)
