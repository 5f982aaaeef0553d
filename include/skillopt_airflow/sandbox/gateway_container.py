"""The model gateways of one task: in the task itself, or as a program of their own beside each sandbox."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import JsonObject, ModelCall
from skillopt_airflow.gateway.backends import handed_over
from skillopt_airflow.gateway.gateway_settings import GatewaySettings
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox.task_workload import Workload, counting

PROXIES = tuple(
    spelled for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for spelled in (name, name.upper())
)
"""Variables of a worker that say by which proxies it reaches the model; they may have passwords."""

log = logging.getLogger(__name__)


def gateway_settings(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> GatewaySettings:
    """Return how a gateway is to treat the calls of a task's sandboxes.

    It sees no other task's gateway, so it has no more of the run's limit than its equal share.

    Args:
        workload: the task's.
        allowance: amount that the gateway may spend before it asks for more.
        gateways: those that the task has at the same time.
    """
    return GatewaySettings(
        stage=workload.stage,
        max_attempts=workload.settings.max_attempts,
        call_timeout=workload.settings.call_timeout,
        max_tokens=workload.settings.max_tokens,
        max_concurrency=workload.run_concurrency,
        share=max(1, workload.settings.concurrency // gateways),
        allowance=allowance,
    )


@contextmanager
def task_gateway(workload: Workload, on_call: Callable[[ModelCall], None]) -> Iterator[ModelGateway]:
    """Yield the model's gateway in the task itself, for as long as the block runs; each sandbox has its own socket."""
    with (
        workload.allotted() as allotment,
        ModelGateway(
            workload.upstream,
            on_call=counting(allotment, on_call),
            search=workload.search,
            more=allotment.more,
            **dict(gateway_settings(workload, allotment.budget)),
        ) as gateway,
    ):
        yield gateway


def gateway_document(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> JsonObject:
    """Return what the gateway's program reads, `skillopt_airflow.gateway.serve.ServeConfig`, with its secrets.

    Raises:
        ConfigError: the run has a search, whose answers only a gateway in the task can store.
    """
    if workload.search is not None:
        raise ConfigError(
            "search.conn_id: on this engine the gateway is a container of its own, which has no search; use a Docker "
            "engine of the worker's host, or leave search.conn_id unset for the documents of the items"
        )
    settings = gateway_settings(workload, allowance, gateways).model_dump(mode="json")
    proxies: JsonObject = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return {**settings, "upstream": handed_over(workload.upstream), "proxies": proxies}


def report_calls(lines: Iterable[bytes], on_call: Callable[[ModelCall], None]) -> None:
    """Report the model calls that a gateway's program wrote, a line each; a bad line is a bug and not an attack."""
    for line in lines:
        try:
            on_call(ModelCall.model_validate_json(line))
        except ValidationError:
            log.warning("The gateway wrote what is no model call: %.200r", line)
