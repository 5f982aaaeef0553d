"""Pages inside Airflow over many skills: the median seconds of an answer, and the memory that it takes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

import httpx

from bench import page_data, tables
from local.environment import REGION, UNCHECKED_KEY
from local.home import free_ports
from local.objectstore import client, server_in
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.night import ledger
from skillopt_airflow.training.night_series import NightSeries, point_of

SKILLS = 500
TARGETS = 50
"""Target models of each benchmark."""
NIGHTS = 60
VERSIONS = 3
LINES = 80
"""Of a skill."""
TRIES = 20
FILLERS = 8
START_SECONDS = 120.0
HEADER = ("page", "seconds, median of 20", "slowest", "KB of the page", "MB before", "MB after")
NOTE = (
    f"Airflow's API server with the plugin, and {SKILLS} skills ({SKILLS // TARGETS} benchmarks with {TARGETS} target "
    f"models each, {VERSIONS} versions of {LINES} lines, {NIGHTS} nights) on a local S3 server that computes on the "
    "same cores. Every answer reads what it shows anew. The user may read all DAGs. The memory is the most that the "
    "server's processes had until it was asked for the page, and by its last answer, Airflow itself included."
)


class Asked(NamedTuple):
    """A page."""

    name: str
    path: str


class Answered(NamedTuple):
    """The costs of a page."""

    name: str
    seconds: list[float]
    kilobytes: float
    before: float
    """Most MB of the server's processes until it was asked for."""
    megabytes: float
    """Most MB of them by its last answer."""


def measure() -> None:
    """Write the table.

    Raises:
        PlatformError: the S3 server or Airflow's database does not start, or a page is not answered.
    """
    with tempfile.TemporaryDirectory() as folder, server_in(Path(folder)) as address:
        fill(address)
        target = quote(_target(0), safe="")
        asked = [
            Asked("list, first of its pages", "/skills"),
            Asked("list, last page", "/skills?page=20"),
            Asked("list, search that finds 10", "/skills?q=model-0007"),
            Asked("a skill", f"/skills/{_names()[0]}?target={target}"),
        ]
        rows = [
            (one.name, *(f"{each:.2f}" for each in (median(one.seconds), max(one.seconds))), f"{one.kilobytes:,.0f}",
             f"{one.before:,.0f}", f"{one.megabytes:,.0f}")
            for one in answers(address, asked)
        ]  # fmt: skip
    tables.write("pages", "Pages inside Airflow", NOTE, HEADER, rows)


def answers(address: str, asked: Sequence[Asked]) -> list[Answered]:
    """Ask an API server of its own for each page 20 times, after once that does not count.

    Args:
        address: of the S3 server.
        asked: the pages.

    Raises:
        PlatformError: Airflow does not start, or a page is not answered.
    """
    found = []
    with api_server(address) as server:
        for one in asked:
            before, body = server.megabytes(), server.get(one.path)
            seconds = [_timed(partial(server.get, one.path)) for _ in range(TRIES)]
            found.append(Answered(one.name, seconds, len(body) / 1024, before, server.megabytes()))
    return found


class ApiServer:
    """Airflow's API server with the pages, and somebody who may read all of them."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self._process = process
        self._url = url
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=60)

    def wait(self) -> None:
        """Wait until it answers, and log in.

        Raises:
            PlatformError: it ended, or took too long.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                token = self._http.get("/auth/token").json()["access_token"]
            except (httpx.TransportError, ValueError):
                time.sleep(0.5)
            else:
                self._http.headers["Authorization"] = f"Bearer {token}"
                return
        raise PlatformError("Airflow's API server did not start")

    def get(self, path: str) -> bytes:
        """Return a page of the plugin.

        Raises:
            PlatformError: it is not answered.
        """
        answer = self._http.get(f"/skillopt{path}")
        if answer.status_code != httpx.codes.OK:
            raise PlatformError(f"{path} answers with status {answer.status_code}: {answer.text[:2000]}")
        return answer.content

    def megabytes(self) -> float:
        """Return the most memory that the server's processes had so far."""
        return sum(_peak(pid) for pid in _family(self._process.pid))


@contextmanager
def api_server(address: str) -> Iterator[ApiServer]:
    """Run an API server with an empty database and a connection to the S3 server.

    Raises:
        PlatformError: it does not start.
    """
    with tempfile.TemporaryDirectory() as home:
        (port,) = free_ports(1)
        connection = (
            f"aws://{UNCHECKED_KEY}:{UNCHECKED_KEY}@/?region_name={REGION}&endpoint_url={quote(address, safe='')}"
        )
        own = {
            "AIRFLOW_HOME": home,
            "AIRFLOW_CONN_SKILLOPT_S3": connection,
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        }
        command = [sys.executable, "-m", "airflow"]
        migrated = subprocess.run([*command, "db", "migrate"], env=os.environ | own, capture_output=True, check=False)
        if migrated.returncode != 0:
            raise PlatformError(f"Airflow's database does not start: {migrated.stderr.decode()[-2000:]}")
        with (Path(home) / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
                env=os.environ | own, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            server = ApiServer(process, f"http://127.0.0.1:{port}")
            server.wait()
            yield server
        finally:
            process.terminate()
            process.wait()


def fill(address: str) -> None:
    """Publish the skills, and write their nights."""
    s3 = client(address)
    storage = StorageGroup()
    for bucket in (storage.bucket, storage.artifact_bucket):
        s3.create_bucket(Bucket=bucket)
    runs, published = (ObjectStore(s3, name) for name in (storage.bucket, storage.artifact_bucket))
    texts = [page_data.skill_text(LINES + place) for place in range(VERSIONS)]
    first = page_data.publish(published, "", _names()[0], _target(0), texts)
    newest, before = (page_data.contender(first, name) for name in first.list_versions()[:-3:-1])
    rows = ledger(page_data.nights(_names()[0], _target(0), newest, before, NIGHTS), page_data.ALPHA)
    series = NightSeries(points=tuple(map(point_of, rows)))

    def one(place: int) -> None:
        name, target = _names()[place // TARGETS], _target(place % TARGETS)
        page_data.publish(published, "", name, target, texts)
        runs.put_model(RegateKeys("", name, target).series, series)
        # A list asks whether there are nights, and not which.
        runs.put_model(RegateKeys("", name, target).night(rows[-1].night.date), rows[-1].night)

    with ThreadPoolExecutor(FILLERS) as pool:
        list(pool.map(one, range(SKILLS)))
    s3.close()


def _timed(call: Callable[[], object]) -> float:
    clock = time.perf_counter()
    call()
    return time.perf_counter() - clock


def _family(pid: int) -> list[int]:
    """Return a process and those that it started."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [pid, *(one for child in started for one in _family(int(child)))]


def _peak(pid: int) -> float:
    """Return the most resident memory that a process had so far, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _names() -> Sequence[str]:
    return benchmarks.names()[: SKILLS // TARGETS]


def _target(place: int) -> str:
    return f"openai-chat:org/model-{place:04d}"
