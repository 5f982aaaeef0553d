"""Trainings, evaluations and nights over Celery workers that share nothing but database, broker and object store.

Faults happen to one host or a service in the middle of a training. It ends as one that nothing happened to, or it stops
with a sentence; and nothing that is stored is paid for twice.
"""

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster_host import PREFIX, folder_of
from platform_control import PROJECT, RunningPlatform, control

from local import services
from local.celery import PREFIX_VARIABLE
from local.engine import install_packages
from local.environment import REGION, UNCHECKED_KEY
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from tests.pipeline.trained_run import DAG, SHORT, TrainedRun, executions
from tests.training.champion.test_nights import healthy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

HOME = PROJECT / ".local" / "cluster"
CLUSTER = ("--executor", "celery", "--workers", "3", "--engines", "2")
SETTINGS = SHORT | {"train.seed": 11, "model.concurrency": 8}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
NIGHT, DAY_AFTER = "2026-02-03", "2026-02-04"
SECONDS = 900


@dataclass
class Cluster:
    """A running platform with workers on hosts of their own."""

    running: RunningPlatform

    def up(self, *options: str) -> None:
        control(HOME, "up", *options, **{PREFIX_VARIABLE: PREFIX})
        self.running.close()
        self.running = RunningPlatform(HOME)

    def train(self, name: str, **overrides: Any) -> TrainedRun:
        """Trigger a training whose stored rollouts nobody else finds."""
        name = f"{name}-{time.time_ns()}"
        return TrainedRun.trigger(self.running, name, SETTINGS | {"storage.prefix": f"{name}/"} | overrides)

    def service(self, name: str) -> psutil.Process:
        process = services.running(self.running.home, name)
        assert process is not None, name
        return process

    def restart(self, host: str) -> None:
        """Cut the power of a host, and switch it on again."""
        self.service(host).kill()
        time.sleep(1)
        self.up(*CLUSTER)

    @contextmanager
    def with_variables(self, host: str, **variables: str) -> Iterator[None]:
        """Have a host with variables of its own."""
        file = folder_of(self.running.home, host) / "variables.json"
        file.write_text(json.dumps(variables), encoding="utf-8")
        self.restart(host)
        try:
            yield
        finally:
            file.unlink()
            self.restart(host)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Runs and faults of tests that were interrupted would go on, and logs of one host be found where hosts have theirs.
    for folder in ("postgres", "s3", "broker", "workers", "airflow/logs"):
        shutil.rmtree(HOME / folder, ignore_errors=True)
    control(HOME, "up", *CLUSTER, **{PREFIX_VARIABLE: PREFIX})
    made = Cluster(RunningPlatform(HOME))
    try:
        yield made
    finally:
        made.running.close()
        control(HOME, "down")


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> TrainedRun:
    """A run that nothing happens to."""
    return cluster.train("plain").wait()


def decisions(run: TrainedRun) -> list[Any]:
    """What a training came to: the verdict and score of each candidate, and the skill at its end."""
    moments = [(moment.name, moment.action, moment.candidate) for moment in run.history.moments]
    return [*moments, run.store.get_text(run.keys.best_skill)]


def hosts(run: TrainedRun, queue: str) -> set[str]:
    return {row["hostname"] for row in run.task_instances() if row["hostname"] and row["queue"] == queue}


def test_tasks_with_containers_run_where_an_engine_is(plain: TrainedRun) -> None:
    assert hosts(plain, "engine") <= {"worker-1", "worker-2"}
    assert hosts(plain, "default") | hosts(plain, "engine") == {"worker-1", "worker-2", "worker-3"}
    assert executions(plain) == {1}


def test_workers_share_no_folder(cluster: Cluster, plain: TrainedRun) -> None:
    """Of a host's own: AIRFLOW_HOME, temporary files, the engine; the logs of all tasks are in the object store."""
    for name in ("worker-1", "worker-2", "worker-3"):
        own = folder_of(cluster.running.home, name)
        assert (own / "airflow").is_dir()
        assert (own / "docker").is_dir() == (name != "worker-3")
        root = f"/proc/{first_process(name)}/root{cluster.running.home.root}"
        assert not list(Path(root, "workers").iterdir())
        assert not list(Path(root, "s3").iterdir())
    assert not list((cluster.running.home.airflow / "logs").rglob("task_id=prepare"))
    [prepared] = [row for row in plain.task_instances() if row["task_id"] == "prepare"]
    assert any("items: " in line for line in plain.log(prepared))


def first_process(host: str) -> int:
    """The process that is number 1 on the host."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("SKILLOPT_SERVICE") == host and "unshare" not in process.name():
                return int(process.pid)
    raise AssertionError(host)


def test_images_are_pinned_by_a_registrys_digest(plain: TrainedRun) -> None:
    record = json.loads(plain.store.get_text(plain.keys.config))
    assert "/skillopt-sandbox@sha256:" in record["image"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"data.uri": "/srv/items.json"}, "data.uri = /srv/items.json: the tasks run on several hosts"),
        ({"sandbox.image": "skillopt-local:latest"}, "skillopt-local:latest"),
    ],
)
def test_what_one_host_alone_has_is_refused_before_the_first_call(
    cluster: Cluster, overrides: dict[str, str], says: str
) -> None:
    run = cluster.train("refused", **overrides)
    assert cluster.running.api.wait(DAG, run.run_id, seconds=SECONDS) == "failed"
    assert says in run.failures()
    assert not run.store.list_keys(run.keys.folder)


@dataclass
class Forwarder:
    """A way to the object store that can be cut: the connections end, and nobody listens any more."""

    target: tuple[str, int]
    open_sockets: list[socket.socket] = field(default_factory=list)
    is_cut: bool = False

    def __post_init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self.is_cut:
                    client.close()
                    continue
                upstream = socket.create_connection(self.target)
                self.open_sockets += [client, upstream]
                for one, other in ((client, upstream), (upstream, client)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self, seconds: float) -> None:
        self.is_cut = True
        for one in self.open_sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self.is_cut = False

    def close(self) -> None:
        self._server.close()


def in_the_middle(run: TrainedRun) -> None:
    """Wait until the first step's rollouts run or have run."""
    deadline = time.monotonic() + SECONDS
    while not any(
        row["task_id"] == "step_01.rollout" and row["state"] in ("running", "success") for row in run.task_instances()
    ):
        assert cluster_state(run) not in ("failed", "success"), run.failures()
        assert time.monotonic() < deadline
        time.sleep(0.3)


def cluster_state(run: TrainedRun) -> str:
    return str(run.platform.api.run(DAG, run.run_id)["state"])


def ends_as(plain: TrainedRun, run: TrainedRun, cluster: Cluster, may_stop_with: Sequence[str] = ()) -> None:
    """Wait for the end of a run: equal to the plain one's, or with one of the sentences."""
    run = TrainedRun(cluster.running, run.run_id, run.prefix)
    state = cluster.running.api.wait(DAG, run.run_id, seconds=SECONDS)
    if state == "failed" and may_stop_with:
        words = run.failures()
        assert any(sentence in words for sentence in may_stop_with), words
    else:
        assert state == "success", run.failures()
        assert decisions(run) == decisions(plain)
    assert executions(run) == {1}
    tries = sum(row["try_number"] > 1 for row in run.task_instances())
    print(f"{run.run_id}: {state}, {tries} tasks were tried again")


def kill_worker(cluster: Cluster) -> None:
    cluster.service("worker-1").kill()


def restart_broker(cluster: Cluster) -> None:
    cluster.service("broker").kill()
    time.sleep(5)
    cluster.up(*CLUSTER)


def stop_engine(cluster: Cluster) -> None:
    """The engine of a worker that goes on."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.name() == "dockerd" and process.environ().get("SKILLOPT_SERVICE") == "worker-1":
                process.kill()
                return
    raise AssertionError("worker-1 has no engine")


def replace_scheduler(cluster: Cluster) -> None:
    cluster.service("scheduler").kill()
    time.sleep(5)
    cluster.up(*CLUSTER)


@pytest.mark.parametrize(
    ("fault", "may_stop_with"),
    [
        (kill_worker, ()),
        (restart_broker, ()),
        (stop_engine, ("no Docker engine responds", "went away")),
        (replace_scheduler, ()),
    ],
)
def test_a_fault_in_the_middle(
    cluster: Cluster, plain: TrainedRun, fault: Callable[[Cluster], None], may_stop_with: Sequence[str]
) -> None:
    run = cluster.train(fault.__name__)
    in_the_middle(run)
    fault(cluster)
    try:
        ends_as(plain, run, cluster, may_stop_with)
    finally:
        if fault in (kill_worker, stop_engine):
            with suppress(AssertionError):
                cluster.service("worker-1").kill()
            cluster.up(*CLUSTER)


def test_a_worker_whose_clock_is_ten_minutes_off(cluster: Cluster, plain: TrainedRun) -> None:
    if not FAKETIME.exists():
        install_packages("faketime")
    with cluster.with_variables("worker-2", LD_PRELOAD=str(FAKETIME), FAKETIME="+10m"):
        ends_as(plain, cluster.train("clock"), cluster)


def test_a_worker_that_is_cut_off_from_the_object_store_for_a_minute(cluster: Cluster, plain: TrainedRun) -> None:
    with closing(Forwarder(("127.0.0.1", cluster.running.settings.ports.s3))) as way:
        endpoint = {"region_name": REGION, "endpoint_url": f"http://127.0.0.1:{way.port}"}
        connection = {"conn_type": "aws", "login": UNCHECKED_KEY, "password": UNCHECKED_KEY, "extra": endpoint}
        with cluster.with_variables("worker-1", AIRFLOW_CONN_SKILLOPT_S3=json.dumps(connection)):
            run = cluster.train("cut")
            in_the_middle(run)
            way.cut(60)
            assert way.open_sockets
            ends_as(plain, run, cluster, ("does not answer",))


def score(cluster: Cluster, run: TrainedRun) -> Any:
    """Score the champion that a run published against the seed."""
    name = f"score-{run.run_id}"
    conf = {"splits": ["val"], "overrides": {"storage.prefix": run.prefix}}
    cluster.running.api.trigger("evaluate_searchqa", conf, name)
    assert cluster.running.api.wait("evaluate_searchqa", name, seconds=SECONDS) == "success"
    store = ObjectStore(cluster.running.s3, "skillopt")
    [cell] = MatrixTable(store, MatrixKeys(run.prefix, "searchqa")).read(scoring_name(name)).cells
    return [one.model_dump(mode="json", include={"score", "items", "against_first"}) for one in cell.skills]


def night(cluster: Cluster, run: TrainedRun) -> Any:
    """Re-gate that champion on a night whose items are in the object store."""
    store = ObjectStore(cluster.running.s3, "skillopt")
    store.put_bytes(f"{run.prefix}fresh/date={NIGHT}/items.json", json.dumps(healthy(1)).encode())
    overrides = {"storage.prefix": run.prefix, "regate.fresh_uri": f"s3://skillopt/{run.prefix}fresh"}
    name = f"night-{run.run_id}"
    body = {"logical_date": f"{DAY_AFTER}T00:00:00Z", "dag_run_id": name, "conf": {"overrides": overrides}}
    api = cluster.running.api
    api.request("PATCH", "/dags/regate_searchqa", json={"is_paused": False})
    api.request("POST", "/dags/regate_searchqa/dagRuns", json=body)
    state = api.wait("regate_searchqa", name, seconds=SECONDS)
    rows = {row["task_id"]: row["state"] for row in api.task_instances("regate_searchqa", name)}
    assert (state, rows["settle_night"]) == ("success", "success"), rows
    # Airflow has one DAG run of a date, and the next training's night has the same one.
    assert api.send("DELETE", f"/dags/regate_searchqa/dagRuns/{name}").is_success
    [key] = [key for key in store.list_keys(run.prefix) if key.endswith(f"date={NIGHT}/night.json")]
    measured = json.loads(store.get_text(key))
    return [measured[name] for name in ("items", "scores", "against_seed", "means", "contents")], rows


def test_one_host_comes_to_the_same(cluster: Cluster) -> None:
    """A training with its publication, an evaluation and a night: the last test, as it turns the workers off."""
    # By fewer items no champion would be sure.
    settings = {"evaluation.test_limit": 40}
    spread = cluster.train("spread", **settings).wait()
    found = decisions(spread), score(cluster, spread), night(cluster, spread)
    cluster.up()
    alone = cluster.train("alone", **settings).wait()
    assert {row["hostname"] for row in alone.task_instances() if row["hostname"]} == {socket.gethostname()}
    assert (decisions(alone), score(cluster, alone), night(cluster, alone)) == found
