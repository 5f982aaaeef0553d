"""The model gateways of one task: in the task itself, or as a program of their own beside each sandbox."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import JsonObject, ModelCall
from skillopt_airflow.gateway.backends import handed_over
from skillopt_airflow.gateway.gateway_settings import ENDED, GatewaySettings
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox.task_workload import Allotment, Workload

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
        allowance: amount that the gateway may spend.
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


def counting(allotment: Allotment, on_call: Callable[[ModelCall], None]) -> Callable[[ModelCall], None]:
    """Return a receiver that counts a call before it passes it on."""

    def counted(call: ModelCall) -> None:
        allotment.count(call)
        on_call(call)

    return counted


@contextmanager
def task_gateway(workload: Workload, on_call: Callable[[ModelCall], None]) -> Iterator[ModelGateway]:
    """Yield the model's gateway in the task itself, for as long as the block runs; each sandbox has its own socket."""
    with workload.allotted() as allotment:
        settings = dict(gateway_settings(workload, allotment.budget))
        count = counting(allotment, on_call)
        try:
            with ModelGateway(workload.upstream, on_call=count, search=workload.search, **settings) as gateway:
                yield gateway
        finally:
            allotment.complete()


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


def report_calls(lines: Iterable[bytes], allotment: Allotment, on_call: Callable[[ModelCall], None]) -> None:
    """Report the model calls that a gateway's program wrote, a line each; a bad line is a bug and not an attack."""
    count = counting(allotment, on_call)
    for line in lines:
        if line == ENDED:
            allotment.complete()
            continue
        try:
            count(ModelCall.model_validate_json(line))
        except ValidationError:
            log.warning("The gateway wrote what is no model call: %.200r", line)
