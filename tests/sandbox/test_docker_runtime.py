"""The path of a remote engine, taken to the one of this machine: nothing here relies on its being near."""

import json
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import docker
import pytest
from docker.errors import ImageNotFound
from docker.types import Mount

from local import image
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ImageMissing, SandboxError
from skillopt_airflow.core.values.types import Item, ItemImage, Status
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox import docker_runtime
from skillopt_airflow.sandbox.docker.container import EXPIRES_LABEL, identity
from skillopt_airflow.sandbox.docker.limits import MEGABYTE, task_seconds
from skillopt_airflow.sandbox.docker_runtime import DockerRuntime, RemoteRuntime
from skillopt_airflow.store.data.corpora import SourceCorpus, StoredCorpus, store_corpus
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
from tests.sandbox.remote_engine import tcp_address
from tests.sandbox.task_process import PROJECT, described, task_process
from tests.sandbox.test_operator import WORKS


def engine(test: Any) -> Any:
    """Mark a test that needs an engine."""
    return pytest.mark.engine(pytest.mark.nightly(test))


class NoImages:
    """The client of an engine without any image."""

    def inspect_image(self, name: str) -> None:
        raise ImageNotFound(name)

    pull = inspect_image


def test_a_gateway_image_that_is_not_there_is_named_as_the_registry_has_it(workload, tmp_path):
    work = workload(None)
    work.limits = SandboxGroup(registry="there/skillopt")
    folder, options = tmp_path, {"exchanges": None, "network": None}
    runtime = RemoteRuntime(NoImages(), work, folder, 1, threading.Event(), **options)
    said = r"sandbox\.registry = there/skillopt/skillopt-gateway:latest"
    with pytest.raises(ImageMissing, match=said), runtime.serving(work.counted.append):
        pass


@pytest.fixture
def remote(gateway_docker_host, store, workload, monkeypatch):
    """A workload on the engine of a connection; on a network from where this machine's loopback is reached."""
    with tcp_address(gateway_docker_host) as address:
        connection = {"conn_type": "docker", "host": address, "extra": {"network": "host"}}
        monkeypatch.setenv("AIRFLOW_CONN_ENGINE_FAR_AWAY", json.dumps(connection))

        def make(provider: ScriptedProvider | None, **options: Any) -> FakeWorkload:
            fake: FakeWorkload = workload(provider, conn_id="engine_far_away", **options)
            return fake

        yield make


@pytest.fixture
def run(store):
    def run(fake: FakeWorkload) -> FakeWorkload:
        # An address at which nobody answers: only the connection's counts.
        FakeOperator(fake=fake, store=store, docker_url="tcp://127.0.0.1:9").execute({})
        assert store.list_keys("sandboxes/") == []
        return fake

    return run


def volumes(client: docker.DockerClient, fake: FakeWorkload) -> list[Any]:
    return client.volumes.list(filters={"label": [f"{name}={text}" for name, text in identity(fake.labels).items()]})


@engine
def test_a_gateway_on_the_engine_keeps_to_its_part_of_the_budget(remote, run):
    with ScriptedProvider(answer_all) as provider:
        fake = remote(provider, count=5)
        fake.allowance = RemainingBudget(calls=3)
        run(fake)
    statuses = list(fake.statuses().values())
    assert (statuses.count(Status.OK), statuses.count(Status.BUDGET)) == (3, 2)
    assert len(fake.counted) == len(provider.requests) == 3
    assert fake.is_complete
    assert fake.is_given_back


@engine
def test_files_go_in_and_come_out_and_each_item_has_its_own_fate(client, remote, run, program):
    fake = remote(None, count=3, concurrency=3, image=program(WORKS), memory="128m")
    fake.one_item_each, fake.public_files = True, {"in.txt": b"for"}
    run(fake)

    assert fake.statuses() == {"i-0": Status.OK, "i-1": Status.SANDBOX_ERROR, "i-2": Status.OK}
    assert fake.left == {f"i-{n}": {"out.txt": f"for i-{n}".encode()} for n in (0, 2)}
    assert leftovers(client, fake) == volumes(client, fake) == []


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


@engine
def test_a_corpus_comes_from_the_store(client, remote, run, store, program, tmp_path):
    (tmp_path / "documents" / "1944").mkdir(parents=True)
    (tmp_path / "documents" / "1944" / "march.txt").write_text(tmp_path.name)
    sha256 = store_corpus(store, "own/", SourceCorpus("documents", tmp_path, cast("Any", None)))
    fake = remote(None, image=program(READS))
    fake.corpus = StoredCorpus(store, "own/", sha256)
    run(fake)

    said = json.loads(fake.trajectories[0].messages[0].content)
    assert said == [tmp_path.name, "Read-only file system"]
    assert leftovers(client, fake) == volumes(client, fake) == []

    store.delete(fake.corpus.archive_keys[0])
    fake.trajectories.clear()
    with pytest.raises(SandboxError, match="could not fetch the inputs"):
        run(fake)
    assert leftovers(client, fake) == volumes(client, fake) == []


@engine
def test_every_item_gets_a_row_and_the_engine_learns_no_secret(client, remote, run):
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
    secrets = (KEY, SECRET_ANSWER, "X-Amz-Signature")
    assert not [text for text in seen if any(secret in text for secret in secrets)]
    rollout, *_ = [text for text in seen if '"/out"' in text and "skillopt_airflow.rollout" in text]
    assert json.loads(rollout)["HostConfig"]["NetworkMode"] == "none"
    assert not json.loads(rollout)["HostConfig"]["Binds"]
    assert leftovers(client, fake) == volumes(client, fake) == []


@engine
def test_no_item_is_held_back_and_a_settled_workload_ends(client, remote, run):
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


@engine
def test_what_comes_back_is_not_trusted(remote, run, program):
    fake = run(remote(None, image=program(HOSTILE), output_mb=4))

    facts = json.loads(fake.trajectories[0].answer)
    assert "No space left" in facts["disk"]
    assert "Read-only" in facts["in"]
    assert {name: len(content) for name, content in fake.left["i-0"].items()} == {"f0": 3 * MEGABYTE}


@engine
def test_a_stopped_task_leaves_nothing_on_the_engine(client, remote, store):
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
        operator = FakeOperator(fake=fake, store=store, docker_url="tcp://127.0.0.1:9")
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


@engine
def test_a_dead_task_takes_its_gateway_along_and_the_next_attempt_removes_the_rest(client, remote, run, store):
    at_work, release = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Reply:
        if not release.is_set():
            at_work.set()
            release.wait(60)
        return answer_all(asked)

    with ScriptedProvider(hang) as provider:
        fake = remote(provider, count=3)
        with task_process(fake, "tcp://127.0.0.1:9", store) as task:
            assert at_work.wait(60)
            (gateway,) = gateways(client, fake)
            task.kill()
            ended = gateway.wait(timeout=60)
        asked = len(provider.requests)
        release.set()
        run(fake)

    assert ended["StatusCode"] == 0
    assert asked == 1
    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(3)}
    assert leftovers(client, fake) == volumes(client, fake) == []


@engine
def test_a_gateway_that_dies_is_told(client, remote, run, caplog):
    fakes = []

    def kill(asked: Asked) -> Reply:
        for one in gateways(client, fakes[0]):
            one.kill()
        return answer_all(asked)

    with ScriptedProvider(kill) as provider:
        fakes.append(remote(provider, count=1))
        run(fakes[0])
    assert fakes[0].statuses() == {"i-0": Status.MODEL_ERROR}
    assert "The model gateway ended before its container" in caplog.text


def gateways(client: docker.DockerClient, fake: FakeWorkload) -> list[Any]:
    return [one for one in leftovers(client, fake) if "gateway.serve" in json.dumps(one.attrs["Config"])]


IN_A_WORKER = """
import json, os
for index, line in enumerate(open("/in/items.jsonl")):
    item = json.loads(line)["id"]
    with open(f"/out/files/{index}/out.txt", "w") as out:
        out.write(f"of {item} " + " ".join(os.listdir("/sys/class/net")))
    with open("/out/trajectories.jsonl", "a") as out:
        out.write(json.dumps({"item_id": item, "status": "ok", "files": ["out.txt"]}) + "\\n")
"""


@engine
def test_a_worker_in_a_container_of_the_engine_mounts_a_folder_at_its_place(docker_host, client, workload, program):
    fake = workload(None, count=2, image=program(IN_A_WORKER))
    socket_file = docker_host.removeprefix("unix://")
    with TemporaryDirectory(prefix="worker-") as folder:
        given = Path(folder, "given.json")
        given.write_text(described(fake, "unix:///var/run/docker.sock"))
        read_only = {PROJECT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path("/usr")}
        worker = client.containers.create(
            image.IMAGE,
            entrypoint=["sh", "-c", f"exec {sys.executable} -m tests.sandbox.task_process < {given}"],
            mounts=[
                *(Mount(str(path), str(path), "bind", read_only=True) for path in read_only),
                Mount(folder, folder, "bind"),
                Mount("/var/run/docker.sock", socket_file, "bind"),
            ],
            environment={
                "PYTHONPATH": f"{PROJECT}/include:{PROJECT}",
                "HOME": "/root",
                "AIRFLOW_HOME": "/root/airflow",
                "TMPDIR": folder,
            },
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
    assert leftovers(client, fake) == []


def test_the_time_of_a_container_begins_once_its_image_is_there(workload, tmp_path, monkeypatch):
    moment = time.time()

    class Slow:
        """Images that take longer to build than a container may live."""

        def __init__(self, *_: Any) -> None:
            pass

        def target_image(self, item: Item) -> str:
            nonlocal moment
            moment += 10_000
            return f"image-of-{item.id}"

    monkeypatch.setattr(docker_runtime, "ItemImages", Slow)
    monkeypatch.setattr(time, "time", lambda: moment)
    fake = workload(None, count=3, timeout=600)
    fake.one_item_each = True
    runtime = DockerRuntime(None, fake, tmp_path, 1, threading.Event())
    runtime._gateway = ModelGateway(fake.upstream, stage="test", max_attempts=1, call_timeout=1.0, on_call=print)
    with runtime._gateway, runtime.sandbox(0, fake.items[:1], [{}]) as container:
        expires = int(container.plan.labels[EXPIRES_LABEL])
    # It waits while what others left is judged.
    assert expires >= moment + task_seconds(fake.limits, 3)


def test_what_a_task_makes_lasts_while_images_are_built_and_tests_judge(workload, tmp_path):
    fake = workload(None, count=2, timeout=100, test_timeout=50)
    fake.items = [
        item.model_copy(update={"image": ItemImage(name="theirs", folder="/testbed", environment="/opt/venv")})
        for item in fake.items
    ]
    runtime = DockerRuntime(None, fake, tmp_path, 1, threading.Event())
    assert int(runtime._plan(0, fake.image).labels[EXPIRES_LABEL]) >= time.time() + 2 * (1800 + 100 + 50 + 240)
