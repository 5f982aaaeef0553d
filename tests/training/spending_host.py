"""A host of its own, as far as a gateway can tell: a process with its own temporary folder, which spends a budget."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import httpx

from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.training.run.spending import BudgetShare
from tests.gateway.gateway_rig import MODEL, PATH, upstream_at
from tests.store.conftest import make_client
from tests.training.publish_worker import opened

IN_FLIGHT = 4
STORED_EVERY = 10


def spend(endpoint: str, bucket: str, run: str, provider: str, folder: str, task: int, tasks: int) -> None:
    """Call until the share of one of so many tasks is spent; rows are stored as they come, a few at a time."""
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    ours, rows = opened(make_client(endpoint), bucket, bucket, run), list[ModelCall]()
    share, path = BudgetShare(ours, ours.timeline[0], "test", str(task), Fraction(1, tasks)), Path(folder) / "s"
    with share.gateway(1, 10**6) as given:

        def on_call(call: ModelCall) -> None:
            given.count(call)
            rows.append(call)
            if len(rows) >= STORED_EVERY:
                share.store([rows.pop() for _ in range(STORED_EVERY)])

        settings = {"max_attempts": 1, "call_timeout": 20.0, "stage": "test"}
        gateway = ModelGateway(upstream_at(provider), path, on_call=on_call, allowance=given.budget, **settings)
        with gateway, ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(_call_until_refused, [path] * IN_FLIGHT))
        given.complete()
    share.store(rows)
    share.close()


def _call_until_refused(path: Path) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://gateway", timeout=60) as client:
        while (status := client.post(PATH, json={"model": MODEL}).status_code) == 200:
            pass
    assert status == 402, status
