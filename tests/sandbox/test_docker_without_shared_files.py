"""The path of a remote engine, taken to the one of this machine: nothing here relies on its being near."""

import json
import sys
import threading
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.types import Mount

from local import image
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.types import Status
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox.corpus_volume import CORPUS_LABEL
from skillopt_airflow.sandbox.docker_limits import MEGABYTE
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.store.corpora import SourceCorpus
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion
from tests.sandbox.fake_workload import (
    KEY,
    SECRET_ANSWER,
    FakeOperator,
    FakeWorkload,
    answer_all,
    leftovers,
    processes_of,
)
from tests.sandbox.task_process import PROJECT, described, task_process
from tests.sandbox.test_operator import WORKS

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


@pytest.fixture
def remote(gateway_docker_host, workload, monkeypatch):
    """A workload on the engine of a connection; on a network from where this machine's loopback is reached."""
    connection = {"conn_type": "docker", "host": gateway_docker_host, "extra": {"network": "host"}}
    monkeypatch.setenv("AIRFLOW_CONN_ENGINE_FAR_AWAY", json.dumps(connection))

    def make(provider: ScriptedProvider | None, **options: Any) -> FakeWorkload:
        fake: FakeWorkload = workload(provider, docker_conn_id="engine_far_away", **options)
        return fake

    return make


def run(fake: FakeWorkload) -> FakeWorkload:
    # An address at which nobody answers: only the connection's counts.
    FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9").execute({})
    return fake


def volumes(client: docker.DockerClient, fake: FakeWorkload) -> list[Any]:
    return client.volumes.list(filters={"label": [f"{name}={text}" for name, text in identity(fake.labels).items()]})


def test_a_gateway_on_the_engine_keeps_to_its_part_of_the_budget(remote):
    with ScriptedProvider(answer_all) as provider:
        fake = remote(provider, count=5)
        fake.allowance = RemainingBudget(calls=3)
        run(fake)
    statuses = list(fake.statuses().values())
    assert (statuses.count(Status.OK), statuses.count(Status.BUDGET)) == (3, 2)
    assert len(fake.counted) == len(provider.requests) == 3
    assert fake.is_complete
    assert fake.is_given_back


def test_files_go_in_and_come_out_and_each_item_has_its_own_fate(client, remote, program):
    fake = remote(None, count=3, concurrency=3, image=program(WORKS), memory="128m")
    fake.one_item_each, fake.public_files = True, {"in.txt": b"for"}
    run(fake)

    assert fake.statuses() == {"i-0": Status.OK, "i-1": Status.SANDBOX_ERROR, "i-2": Status.OK}
    assert fake.left == {f"i-{n}": {"out.txt": f"for i-{n}".encode()} for n in (0, 2)}
    assert leftovers(client, fake) == volumes(client, fake) == []


COUNTS = """
import json, pathlib
items = sorted(pathlib.Path("/in/files").iterdir(), key=lambda folder: int(folder.name))
with open("/out/trajectories.jsonl", "w") as out:
    for folder in items:
        said = {"role": "assistant", "content": (folder / "in.txt").read_text()}
        out.write(json.dumps({"item_id": f"i-{folder.name}", "status": "ok", "messages": [said]}) + "\\n")
"""


def test_many_small_files_go_in(client, remote, program):
    # Each takes a page of the volume's memory, four times what it takes of an archive.
    fake = remote(None, count=800, concurrency=1, image=program(COUNTS))
    fake.public_files = {"in.txt": b"small"}
    run(fake)

    assert set(fake.statuses().values()) == {Status.OK}
    assert len(fake.statuses()) == 800


READS = """
import json, pathlib
try:
    wrote = str(open("/corpus/x", "w"))
except OSError as error:
    wrote = error.strerror
said = json.dumps([pathlib.Path("/corpus/1944/march.txt").read_text(), wrote])
row = {"item_id": "i-0", "status": "ok", "messages": [{"role": "assistant", "content": said}]}
with open("/out/trajectories.jsonl", "w") as out:
    out.write(json.dumps(row) + "\\n")
"""


def test_a_corpus_lies_in_a_volume_that_outlives_its_task(client, remote, program, tmp_path):
    (tmp_path / "documents" / "1944").mkdir(parents=True)
    (tmp_path / "documents" / "1944" / "march.txt").write_text(tmp_path.name)
    fake = remote(None, image=program(READS))
    fake.corpus = SourceCorpus("documents", tmp_path, cast("Any", None))
    run(fake)

    (kept,) = client.volumes.list(filters={"label": f"{CORPUS_LABEL}={fake.corpus.manifest.sha256}"})
    try:
        said = json.loads(fake.trajectories[0].messages[0].content)
        assert said == [tmp_path.name, "Read-only file system"]
        assert leftovers(client, fake) == volumes(client, fake) == []
    finally:
        kept.remove(force=True)


def test_every_item_gets_a_row_and_the_engine_learns_no_secret(client, remote):
    seen: list[str] = []

    def inspect(asked: Asked) -> Reply:
        containers = leftovers(client, fake)
        seen.extend(json.dumps(container.attrs) for container in containers)
        for container in containers:
            seen.extend(processes_of(client, container))
        return answer_all(asked)

    with ScriptedProvider(inspect) as provider:
        fake = remote(provider, count=5, concurrency=3)
        run(fake)

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(5)}
    assert [call.http_status for call in fake.calls] == [200] * 5
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert len(seen) > 6
    assert not [text for text in seen if KEY in text or SECRET_ANSWER in text]
    rollout, *_ = [text for text in seen if '"/out"' in text and "skillopt_airflow.rollout" in text]
    assert json.loads(rollout)["HostConfig"]["NetworkMode"] == "none"
    assert not json.loads(rollout)["HostConfig"]["Binds"]
    assert leftovers(client, fake) == volumes(client, fake) == []


def test_no_item_is_held_back_and_a_settled_workload_ends(client, remote):
    def second_hangs(asked: Asked) -> Reply:
        if asked.number == 2:
            assert settled.wait(60)
        return answer_all(asked)

    def has_rows() -> bool:
        if fake.trajectories:
            settled.set()
        return settled.is_set()

    settled = threading.Event()
    with ScriptedProvider(second_hangs) as provider:
        fake = remote(provider, count=2, concurrency=2)
        fake.released, fake.is_settled = 1, has_rows
        run(fake)
    assert provider.requests
    assert 1 <= len(fake.trajectories) <= 2
    assert leftovers(client, fake) == volumes(client, fake) == []


HOSTILE = """
import json, os
(item,) = [json.loads(line) for line in open("/in/items.jsonl")]
def write(name, count):
    with open(name, "wb") as out:
        for _ in range(count):
            out.write(bytes(1 << 20))
os.symlink("/etc/passwd", "/out/files/0/link")
os.mkfifo("/out/files/0/pipe")
os.mkdir("/out/files/7")
open("/out/files/7/other", "w").close()
facts = {}
for n in range(3):
    try:
        write(f"/out/files/0/f{n}", 3)
    except OSError as error:
        facts["disk"] = str(error)
os.remove("/out/files/0/f1")
try:
    open("/in/x", "w")
except OSError as error:
    facts["in"] = str(error)
row = {"item_id": "i-0", "status": "ok", "answer": json.dumps(facts), "files": ["link", "pipe", "f0", "other"]}
with open("/out/trajectories.jsonl", "w") as out:
    out.write(json.dumps(row) + "\\n")
"""


def test_what_comes_back_is_not_trusted(client, remote, program):
    fake = run(remote(None, image=program(HOSTILE), output_mb=4))

    facts = json.loads(fake.trajectories[0].answer)
    assert "No space left" in facts["disk"]
    assert "Read-only" in facts["in"]
    assert {name: len(content) for name, content in fake.left["i-0"].items()} == {"f0": 3 * MEGABYTE}


def test_a_stopped_task_leaves_nothing_on_the_engine(client, remote):
    at_work, release = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def hang(asked: Asked) -> Reply:
        at_work.set()
        release.wait(60)
        return completion("late")

    def task() -> None:
        try:
            operator.execute({})
        except SandboxError as error:
            errors.append(error)

    with ScriptedProvider(hang) as provider:
        fake = remote(provider)
        operator = FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9")
        thread = threading.Thread(target=task)
        thread.start()
        assert at_work.wait(60)
        assert len(leftovers(client, fake)) == 3
        operator.on_kill()
        gone = leftovers(client, fake)
        release.set()
        thread.join(60)

    assert gone == volumes(client, fake) == []
    assert "stopped" in str(errors[0])
    assert fake.trajectories == []


def test_a_dead_task_takes_its_gateway_along_and_the_next_attempt_removes_the_rest(client, remote):
    at_work, release = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Reply:
        if not release.is_set():
            at_work.set()
            release.wait(60)
        return answer_all(asked)

    with ScriptedProvider(hang) as provider:
        fake = remote(provider, count=3)
        with task_process(fake, "tcp://127.0.0.1:9") as task:
            assert at_work.wait(60)
            (gateway,) = [one for one in leftovers(client, fake) if one.attrs["Config"]["OpenStdin"]]
            task.kill()
            ended = gateway.wait(timeout=60)
        asked = len(provider.requests)
        release.set()
        run(fake)

    assert ended["StatusCode"] == 0
    assert asked == 1
    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(3)}
    assert leftovers(client, fake) == volumes(client, fake) == []


def test_a_gateway_that_dies_is_told(client, remote, caplog):
    fakes = []

    def kill(asked: Asked) -> Reply:
        for one in leftovers(client, fakes[0]):
            if one.attrs["Config"]["OpenStdin"]:
                one.kill()
        return answer_all(asked)

    with ScriptedProvider(kill) as provider:
        fakes.append(remote(provider, count=1))
        run(fakes[0])
    assert fakes[0].statuses() == {"i-0": Status.MODEL_ERROR}
    assert "The model gateway ended before its task, so rollouts fail until" in caplog.text


IN_A_WORKER = """
import json, os
for index, line in enumerate(open("/in/items.jsonl")):
    item = json.loads(line)["id"]
    with open(f"/out/files/{index}/out.txt", "w") as out:
        out.write(f"of {item} " + " ".join(os.listdir("/sys/class/net")))
    with open("/out/trajectories.jsonl", "a") as out:
        out.write(json.dumps({"item_id": item, "status": "ok", "files": ["out.txt"]}) + "\\n")
"""


def test_a_worker_in_a_container_with_the_engines_socket(gateway_docker_host, client, workload, program, tmp_path):
    """Nothing tells it that its files are not the engine's."""
    fake = workload(None, count=2, image=program(IN_A_WORKER))
    socket_file = gateway_docker_host.removeprefix("unix://")
    (tmp_path / "given.json").write_text(described(fake, "unix:///var/run/docker.sock"))
    read_only = {PROJECT, tmp_path, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path("/usr")}
    mounts = [Mount(str(path), str(path), "bind", read_only=True) for path in read_only]
    worker = client.containers.create(
        image.IMAGE,
        entrypoint=["sh", "-c", f"exec {sys.executable} -m tests.sandbox.task_process < {tmp_path}/given.json"],
        mounts=[*mounts, Mount("/var/run/docker.sock", socket_file, "bind")],
        environment={"PYTHONPATH": f"{PROJECT}/include:{PROJECT}", "HOME": "/root", "AIRFLOW_HOME": "/root/airflow"},
        network_mode="host",
        user="0:0",
        working_dir=str(PROJECT),
    )
    try:
        worker.start()
        ended = worker.wait(timeout=300)
        said = worker.logs(stderr=False).decode()
        errors = worker.logs(stdout=False).decode()
    finally:
        worker.remove(force=True)

    assert ended["StatusCode"] == 0, errors
    told = json.loads(said.splitlines()[-1])
    assert told["statuses"] == {"i-0": "ok", "i-1": "ok"}
    assert told["left"] == {f"i-{n}": {"out.txt": f"of i-{n} lo"} for n in range(2)}
    assert leftovers(client, fake) == volumes(client, fake) == []
