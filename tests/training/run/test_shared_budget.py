"""Hosts that share nothing but the object store keep to one budget, also if one of them is killed."""

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run.spending import BudgetShare, limits_of_run
from tests.gateway.scripted_provider import ScriptedProvider, completion
from tests.training import spending_host
from tests.training.in_process import Training, configured
from tests.training.run.test_spending import begun


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    pause = multiprocessing.get_context("spawn").Event()

    def answer(_: Any) -> Any:
        pause.wait(0.02)
        return completion("x")

    with ScriptedProvider(answer) as server:
        yield server


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_hosts_that_share_nothing_but_the_object_store_make_no_more_calls_than_the_budget_has(
    store: ObjectStore, s3_endpoint: str, provider: ScriptedProvider, tmp_path: Path, killed: bool
) -> None:
    most, hosts, context = 400, 3, multiprocessing.get_context("forkserver")
    # All of them fork from one process that has imported what they need.
    context.set_forkserver_preload(["tests.training.spending_host"])
    training = Training(configured("searchqa", {"budget.max_calls": most}), name="hosts", store=store)  # type: ignore[arg-type]
    training.prepare()

    def started(number: int) -> Any:
        folder = tmp_path / f"{number}-{time.time()}"
        folder.mkdir()
        arguments = (s3_endpoint, store.bucket, "hosts", provider.base_url, str(folder), number, hosts)
        process = context.Process(target=spending_host.spend, args=arguments)
        process.start()
        return process

    running = [started(number) for number in range(hosts)]
    if killed:
        while len(provider.requests) < most // 4:
            time.sleep(0.01)
        running[0].kill()
        running[0].join()
        # The retry of a task that held all of its part finds nothing left of it.
        running.append(started(0))
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == ([-9, 0, 0, 0] if killed else [0, 0, 0])

    made = len(provider.requests)
    stored = len(list(training.run.usage.rows("searchqa", "hosts")))
    assert made <= most
    assert killed or made == stored == hosts * (most // hosts)
    left = limits_of_run(training.run).calls
    assert left is not None
    assert made + left <= most
    assert begun(BudgetShare(training.run, training.run.timeline[0], "afterwards", "0"), most) == left
