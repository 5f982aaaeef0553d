"""One evaluation of 100,000 items by Airflow, with containers and models: seconds, memory, files, bytes a rollout."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from multiprocessing.connection import Connection
from typing import Any

import psutil

from bench import large_run, tables
from bench.checkout import PLACE, Checkout, checkout
from bench.cpu_seconds import metered
from bench.piped_process import piped
from bench.repeated_looks import looking
from local import services
from local.airflow_services import NAMES, SCHEDULER
from local.environment import model_connection
from local.served import served
from local.standin.server import Endpoint, StandInServer
from skillopt_airflow.store.keys import trajectories_of
from skillopt_airflow.store.parts import parts_of

NAME = "large"
DAG = f"evaluate_{NAME}"
SIZES = (1_000, 100_000)
"""Items on the selection split."""
CONCURRENCY = 16
LOOK_SECONDS = 0.5
MEBIBYTE = 1024 * 1024
ANSWER = {
    "id": "chatcmpl-0",
    "object": "chat.completion",
    "created": 0,
    "model": NAME,
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "I do not know. " * 13}}
    ],
    "usage": {"prompt_tokens": 600, "completion_tokens": 52, "total_tokens": 652},
}
NOTE = (
    "The DAG `evaluate_<benchmark>` scores the seed skill on the selection split, each item with 3 KB of documents, "
    f"against a server that says the same to everything at once. {CONCURRENCY} calls are in flight, and all of it runs "
    "on the one machine. CPU is that of all processes of the platform: Airflow, database, S3 server, engine, "
    "containers. Memory is resident, of the largest process of a kind at any moment; a task's has what it shares with "
    "the scheduler, which imports for it."
)


def measure() -> None:
    """Write the table.

    Raises:
        PlatformError: a run did not succeed.
    """
    with piped(_serve) as pipe:
        port = int(pipe.recv())
        columns = [_figures(items, port) for items in SIZES]
    rows = [(figure, *(column[figure] for column in columns)) for figure in columns[-1]]
    header = ("figure", *(f"{items:,} items" for items in SIZES))
    tables.write("large_airflow", "Evaluations of 1,000 and of 100,000 items by Airflow", NOTE, header, rows)


def _figures(items: int, port: int) -> dict[str, str]:
    data = PLACE / ".local" / "data" / NAME
    layer = {
        "data": {"uri": str(data), "split_mode": "split_dir"},
        "model": {"target_conn_id": NAME, "optimizer_conn_id": NAME, "concurrency": CONCURRENCY},
    }
    connection = model_connection(f"http://127.0.0.1:{port}/v1", f"openai-chat:{NAME}")
    with checkout({NAME: layer}, **{NAME: connection}) as place:
        large_run.write_data(data, items)
        began = time.monotonic()
        with metered(place.home) as cpu, _peaks(place) as peaks:
            run_id = place.run(DAG, {"skill": "seed", "compare_to": None, "split": "val"})
        seconds = time.monotonic() - began
        instances = list(place.api.task_instances(DAG, run_id))
        keys = parts_of(place.store, trajectories_of("", NAME))
        chunks = [row for row in instances if row["task_id"] == "rollout"]
        return {
            "seconds": f"{seconds:,.0f}",
            **{f"seconds of {task}": f"{_seconds(instances, task):,.1f}" for task in ("prepare", "rollout", "score")},
            "rollouts a second": f"{items / _seconds(instances, 'rollout'):.1f}",
            "CPU ms a rollout": f"{1000 * cpu.seconds / items:.0f}",
            "chunks": str(len(chunks)),
            "tries of chunks": str(sum(row["try_number"] for row in chunks)),
            "files of rollouts": str(len(keys)),
            "bytes a rollout": f"{sum(map(place.store.size, keys)) / items:,.0f}",
            **{f"{kind}: most MiB": f"{peaks[kind]:,.0f}" for kind in sorted(peaks)},
        }


def _serve(pipe: Connection) -> None:
    server = StandInServer("127.0.0.1", 0)
    server.endpoints = {"/v1/chat/completions": Endpoint(lambda _: ANSWER)}
    with served(server), suppress(EOFError):
        pipe.send(server.server_port)
        pipe.recv()


def _seconds(instances: Sequence[Any], task: str) -> float:
    """Return the seconds from the start of a task's first instance to the end of its last."""
    times = [
        (datetime.fromisoformat(row["start_date"]), datetime.fromisoformat(row["end_date"]))
        for row in instances
        if row["task_id"] == task
    ]
    return (max(end for _, end in times) - min(start for start, _ in times)).total_seconds()


@contextmanager
def _peaks(place: Checkout) -> Iterator[Counter[str]]:
    """Yield the MiB of the largest process of each of Airflow's services, and of the tasks, until the block ends."""
    peaks = Counter[str]()

    def look() -> None:
        for name in NAMES:
            with suppress(psutil.Error):
                _look(peaks, place, name)

    with looking(look, LOOK_SECONDS):
        yield peaks


def _look(peaks: Counter[str], place: Checkout, name: str) -> None:
    service = services.running(place.home, name)
    if service is None:
        return
    peaks[name] = max(peaks[name], service.memory_info().rss / MEBIBYTE)
    for process in service.children(recursive=True) if name == SCHEDULER else ():
        with suppress(psutil.Error):
            peaks["task"] = max(peaks["task"], process.memory_info().rss / MEBIBYTE)
