"""Cost of the gateway per model call: CPU time, and latency compared with direct calls."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from pydantic import SecretStr

from bench import tables
from bench.piped_process import piped
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.one_try import START
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream

LATENCY = 1.0
CROWDS = ((1, 1), (1, 32), (1, 256), (4, 64))
"""Numbers of gateways, and of calls in flight per gateway."""
ROUNDS = 12
WARM_ROUNDS = 4
"""Unmeasured rounds, in which a gateway's rate limit doubles until all calls pass."""
HEADER = ("gateways", "calls in flight", "direct median", "added median", "added 99 %", "CPU ms a call")
NOTE = (
    f"Calls over open connections to a server that takes {LATENCY:g} s for each, with a question of 8 KB; "
    "milliseconds. The callers begin evenly spread over the latency, and each makes a new call when it has its "
    "answer. `direct` is without a gateway, in the same run; `added` is what the median and the 99th percentile grow "
    "by through the gateways, each of which finds its own rate limit. CPU is that of the gateways' processes, "
    "user and system."
)


@dataclass(frozen=True)
class Gateway:
    """A gateway in a separate process."""

    socket: Path
    pipe: Connection

    def cpu_seconds(self) -> float:
        self.pipe.send("cpu")
        return float(self.pipe.recv())


def measure() -> None:
    """Write the table.

    Raises:
        SandboxError: a call failed.
    """
    with piped(_serve) as pipe:
        port = int(pipe.recv())
        rows = [_row(port, gateways, calls) for gateways, calls in CROWDS]
    tables.write("gateway", "The gateway's cost of a call", NOTE, HEADER, rows)


def _row(port: int, count: int, calls: int) -> tuple[str, ...]:
    with _gateways(count, port) as gateways:
        direct = asyncio.run(_crowd(lambda: asyncio.open_connection("127.0.0.1", port), count * calls, ROUNDS // 4))
        paths = [gateway.socket for gateway in gateways] * calls
        turns = iter(paths * 2)
        asyncio.run(_crowd(lambda: asyncio.open_unix_connection(next(turns)), len(paths), WARM_ROUNDS))
        before = sum(gateway.cpu_seconds() for gateway in gateways)
        through = asyncio.run(_crowd(lambda: asyncio.open_unix_connection(next(turns)), len(paths), ROUNDS))
        cpu = sum(gateway.cpu_seconds() for gateway in gateways) - before
    return (
        str(count),
        str(count * calls),
        f"{1000 * statistics.median(direct):.1f}",
        *(f"{1000 * (_quantile(through, share) - _quantile(direct, share)):.1f}" for share in (0.5, 0.99)),
        f"{1000 * cpu / len(through):.2f}",
    )


def _quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[int(share * len(seconds))]


Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _crowd(connect: Open, callers: int, rounds: int) -> list[float]:
    """Return the seconds of each call; callers run in parallel, the calls of one caller in sequence."""
    seconds: list[float] = []

    async def caller(number: int) -> None:
        await asyncio.sleep(LATENCY * number / callers)
        reader, writer = await connect()
        for _ in range(rounds):
            clock = time.perf_counter()
            writer.write(REQUEST)
            await _read(reader)
            seconds.append(time.perf_counter() - clock)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return seconds


async def _read(reader: asyncio.StreamReader) -> None:
    """Read one request or answer.

    Raises:
        SandboxError: the answer is an error.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    if not head.startswith((b"HTTP/1.1 200", b"POST")):
        raise SandboxError(f"a call failed: {body.decode()}")


@contextmanager
def _gateways(count: int, port: int) -> Iterator[list[Gateway]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gateways = [
            Gateway(path, stack.enter_context(piped(_run_gateway, path, port)))
            for path in (Path(folder) / f"{number}.sock" for number in range(count))
        ]
        for gateway in gateways:
            gateway.pipe.recv()
        yield gateways


def _run_gateway(pipe: Connection, path: Path, port: int) -> None:
    upstream = Upstream(
        dialect="openai-chat",
        base_url=f"http://127.0.0.1:{port}/v1",
        model="slow",
        api_key=SecretStr("a-key-of-more-than-16-characters"),
    )
    with ModelGateway(
        upstream,
        path,
        on_call=lambda call: None,
        stage="bench",
        max_attempts=2,
        call_timeout=60.0,
        max_concurrency=8 * START,
        share=8 * START,
        allowance=RemainingBudget(calls=10**6, tokens=10**9, usd=1000.0, input_price=1.0, output_price=1.0),
    ):
        pipe.send("listening")
        try:
            while pipe.recv():
                pipe.send(time.process_time())
        except EOFError:
            return


def _serve(pipe: Connection) -> None:
    asyncio.run(_answer_all(pipe))


async def _answer_all(pipe: Connection) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, backlog=512)
    pipe.send(server.sockets[0].getsockname()[1])
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
    await ended.wait()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await _read(reader)
            await asyncio.sleep(LATENCY)
            writer.write(ANSWER)
    except asyncio.IncompleteReadError:
        writer.close()


def _message(first: str, document: object) -> bytes:
    body = json.dumps(document).encode()
    head = f"{first}\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


REQUEST = _message(
    "POST /v1/chat/completions HTTP/1.1",
    {
        "model": "slow",
        "max_tokens": 64,
        "messages": [
            {"role": "system", "content": "Answer in few words."},
            {"role": "user", "content": "[DOC] The tower is in Paris. " * 280},
        ],
    },
)
ANSWER = _message(
    "HTTP/1.1 200 OK",
    {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "slow",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "<answer>Eiffel</answer>"},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 2000, "completion_tokens": 8, "total_tokens": 2008},
    },
)
