"""The gateway that the containers of one task need."""

from skillopt_airflow.gateway.gateway_settings import GatewaySettings
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.task_workload import Workload


def gateway_settings(workload: Workload) -> GatewaySettings:
    """Return the settings of the gateway that serves a task's containers.

    As many tries as the run may have items under way can ever be of use.
    """
    run = {name: workload.labels[name] for name in ("store", "dag_run", "run") if name in workload.labels}
    return GatewaySettings(
        stage=workload.stage,
        dialect=workload.settings.dialect,
        max_attempts=workload.settings.max_attempts,
        call_timeout=workload.settings.call_timeout,
        max_concurrency=workload.limits.max_containers * workload.settings.concurrency,
        allowance=workload.allowance,
        shared_by=" ".join(f"{name}={value}" for name, value in identity(run).items()),
    )
