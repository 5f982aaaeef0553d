"""Throughput of containers side by side, compared with the bound that a model server's latency sets."""

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import SecretStr

from bench import tables
from local import engine, image
from local.home import PROJECT
from local.served import served
from skillopt_airflow.core.config import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.types import Item, ModelCall, Status
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.sandbox.operator import RolloutOperator
from skillopt_airflow.sandbox.task_workload import Outcome, SandboxSeconds, Workload

ITEMS, CONTAINERS = 200, 4
CONCURRENCIES = (4, 8)
LATENCY = 1.0
HEADER = ("items at a time in each", "latency bound", "containers' start", "wall", "wall / (bound + start)")
NOTE = (
    f"{ITEMS} items through {CONTAINERS} containers against a server that takes {LATENCY:g} s for every call; seconds. "
    "The latency bound is latency x items / (containers x items at a time). The containers' start is the wall time of "
    "as many containers with one item each and a server that answers at once. The gateways of the containers share one "
    "limit of calls in flight, which starts at 32 and grows until the server asks for less."
)


@dataclass
class Chunk:
    """A workload of plain items that keeps what comes out to itself."""

    index: int
    items: Sequence[Item]
    upstream: Upstream
    settings: RolloutSettings
    run: str
    run_concurrency: int
    skill: str = "Answer in few words."
    stage: str = "evaluate"
    image: str = HARNESSES["chat"].image
    one_item_each: bool = False
    released: int | None = None
    allowance: RemainingBudget = field(default_factory=RemainingBudget)
    limits: SandboxGroup = field(default_factory=SandboxGroup)
    ok: int = 0

    @property
    def labels(self) -> Mapping[str, str]:
        """Return what tells this container from the others."""
        return {"run": self.run, "step": "0", "chunk": str(self.index)}

    def files(self, item: Item) -> Mapping[str, bytes]:
        """Do nothing."""
        return {}

    def settled(self) -> bool:
        """Never reject: all items are wanted."""
        return False

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        """Count what went well."""
        self.ok += sum(one.trajectory.status is Status.OK for one in outcomes)


class ChunkOperator(RolloutOperator):
    """Runs one chunk outside of Airflow."""

    def __init__(self, *, chunk: Chunk, **kwargs: Any) -> None:
        super().__init__(task_id="rollout", image=chunk.image, **kwargs)
        self._chunk = chunk

    def workload(self, context: Any) -> Workload:
        """Return the chunk."""
        return self._chunk

    def result(self, workload: Workload, seconds: SandboxSeconds) -> Any:
        """Return how many items ended well."""
        return self._chunk.ok


def measure() -> None:
    """Write the table.

    Raises:
        SandboxError: an item failed.
    """
    home = PROJECT / ".local"
    ran = engine.answers(engine.OwnEngine(home).url)
    url = engine.ensure(home, print)
    image.ensure(home, url, print)
    try:
        rows = [_row(url, concurrency) for concurrency in CONCURRENCIES]
    finally:
        if url == engine.OwnEngine(home).url and not ran:
            engine.stop(home)
    tables.write("latency", "Rollouts against a server's latency", NOTE, HEADER, rows)


def _row(docker_url: str, concurrency: int) -> tuple[str, ...]:
    start = _wall(docker_url, concurrency, items=CONTAINERS, latency=0.0)
    wall = _wall(docker_url, concurrency, items=ITEMS, latency=LATENCY)
    bound = LATENCY * ITEMS / (CONTAINERS * concurrency)
    return (str(concurrency), f"{bound:.1f}", f"{start:.1f}", f"{wall:.1f}", f"{wall / (bound + start):.2f}")


def _wall(docker_url: str, concurrency: int, items: int, latency: float) -> float:
    """Return the seconds from the first container's start to the last row, a process a container as on a worker."""
    with _server(latency) as base_url:
        run = f"latency-{time.time_ns()}"
        chunks = [_chunk(index, items // CONTAINERS, base_url, concurrency, run) for index in range(CONTAINERS)]
        context = multiprocessing.get_context("spawn")
        with context.Pool(CONTAINERS) as pool:
            # The imports of a process are Airflow's business, not the container's.
            pool.map(_warm, range(CONTAINERS), chunksize=1)
            clock = time.monotonic()
            ok = pool.starmap(_run, [(docker_url, chunk) for chunk in chunks], chunksize=1)
            wall = time.monotonic() - clock
    if sum(ok) != items:
        raise SandboxError(f"only {sum(ok)} of {items} items ended well")
    return wall


def _warm(_: int) -> None:
    import docker  # noqa: F401

    import skillopt_airflow.gateway.model_gateway  # noqa: F401

    time.sleep(1.0)


def _run(docker_url: str, chunk: Chunk) -> int:
    done: int = ChunkOperator(chunk=chunk, docker_url=docker_url).execute({})
    return done


def _chunk(index: int, count: int, base_url: str, concurrency: int, run: str) -> Chunk:
    public = {"question": "Which tower?", "context": "[DOC] Eiffel"}
    return Chunk(
        index=index,
        items=[
            Item(id=f"{index}-{number}", public=public, reference={"answers": ["Eiffel"]}) for number in range(count)
        ],
        upstream=Upstream(dialect="openai-chat", base_url=base_url, model="slow", api_key=SecretStr("none")),
        settings=RolloutSettings(
            benchmark="searchqa",
            dialect="openai-chat",
            model="slow",
            max_tokens=64,
            concurrency=concurrency,
            call_timeout=60,
            max_attempts=2,
        ),
        run=run,
        run_concurrency=concurrency * CONTAINERS,
    )


class _Slow(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    latency = 0.0

    def do_POST(self) -> None:
        """Answer every question alike."""
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.latency)
        message = {"role": "assistant", "content": "<answer>Eiffel</answer>"}
        body = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "slow",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def _server(latency: float) -> Iterator[str]:
    with served(_Server(("127.0.0.1", 0), type("Slow", (_Slow,), {"latency": latency}))) as server:
        yield f"http://127.0.0.1:{server.server_port}/v1"
