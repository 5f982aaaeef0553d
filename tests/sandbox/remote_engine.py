"""What stands between a task and an engine of another machine, on this one: an address of the engine, and a store."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from skillopt_airflow.rollout.program import open_forwarder
from skillopt_airflow.store.objects import ObjectStore
from tests.store.conftest import make_client


@contextmanager
def tcp_address(docker_host: str) -> Iterator[str]:
    """An address of the engine at a unix socket."""
    loop, ready, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[str] = []

    async def forward() -> None:
        async with open_forwarder(docker_host.removeprefix("unix://")) as address:
            found.append(address.replace("http://", "tcp://"))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(forward(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.close()


@contextmanager
def signing_store(endpoint: str, name: str) -> Iterator[ObjectStore]:
    """An empty bucket whose objects are reached by signed addresses."""
    client = make_client(endpoint, signature_version="s3v4")
    bucket = f"test-{abs(hash(name))}"
    client.create_bucket(Bucket=bucket)
    yield ObjectStore(client, bucket)
    client.close()
