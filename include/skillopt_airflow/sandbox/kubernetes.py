"""The Airflow operator that runs the items of one workload in pods of a Kubernetes cluster."""

from __future__ import annotations

import threading
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from skillopt_airflow.sandbox.cluster import reached
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.pod import workload_label
from skillopt_airflow.sandbox.pod_runtime import PodRuntime
from skillopt_airflow.sandbox.rollout_task import RolloutTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillopt_airflow.sandbox.pod_runtime import Exchange
    from skillopt_airflow.sandbox.staging import TaskFolder
    from skillopt_airflow.sandbox.task_workload import Workload


class PodRolloutOperator(RolloutTask, KubernetesPodOperator):
    """Runs a workload's open items in pods; see `RolloutTask`.

    KubernetesPodOperator supplies the hook, the client and the templated arguments. Its `execute` makes one pod, shows
    whatever the pod says, and fails the task when the pod fails, so the pods are `skillopt_airflow.sandbox.cluster.Pod`
    instead. Cluster and namespace are those of the workload's limits.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(deferrable=False, **kwargs)
        self._stopped = threading.Event()

    @abstractmethod
    def exchange(self, name: str) -> Exchange:
        """Return a folder of the store for a workload or, inside of it, a pod; a name may have slashes."""

    @contextmanager
    def opened(self, workload: Workload, folder: TaskFolder, attempt: int) -> Iterator[PodRuntime]:
        """Yield the runtime of the workload's cluster, after removing what killed tasks left there."""
        self.kubernetes_conn_id = workload.limits.kubernetes_conn_id
        self.namespace = workload.limits.namespace
        with reached(self.namespace):
            client = self.client
        self._runtime = runtime = PodRuntime(client, workload, folder, attempt, self.exchange, self._stopped)
        runtime.remove_all()
        self.exchange(workload_label(identity(workload.labels))).clear()
        yield runtime
