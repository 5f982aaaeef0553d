"""A host of its own, as far as a gateway can tell: a process with its own temporary folder, which spends a budget."""

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.training.budget_lease import BudgetLease
from tests.gateway.gateway_rig import MODEL, PATH, upstream_at
from tests.store.conftest import make_client
from tests.training.publish_worker import opened

IN_FLIGHT = 4
STORED_EVERY = 10


def spend(endpoint: str, bucket: str, run: str, provider: str, folder: str) -> None:
    """Call until the budget is spent; rows are stored as they come, a few at a time."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    ours, rows = opened(make_client(endpoint), bucket, bucket, run), list[ModelCall]()

    def store(calls: Sequence[ModelCall]) -> None:
        ours.usage.append("searchqa", run, calls, ours.timeline[0])

    lease, path = BudgetLease(ours, folder), Path(folder) / "model.sock"
    with lease.part() as part:

        def on_call(call: ModelCall) -> None:
            part.count(call)
            rows.append(call)
            if len(rows) >= STORED_EVERY:
                store([rows.pop() for _ in range(STORED_EVERY)])

        settings = {"max_attempts": 1, "call_timeout": 20.0, "stage": "test"}
        gateway = ModelGateway(
            upstream_at(provider), path, on_call=on_call, more=part.more, allowance=part.budget, **settings
        )
        with gateway, ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(_call_until_refused, [path] * IN_FLIGHT))
    store(rows)
    lease.settle()


def _call_until_refused(path: Path) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://gateway", timeout=60) as client:
        while (status := client.post(PATH, json={"model": MODEL}).status_code) == 200:
            pass
    assert status == 402, status
