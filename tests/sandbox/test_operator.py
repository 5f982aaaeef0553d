import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from local import image
from skillopt_airflow.core.errors import EngineUnavailable, ImageMissing, SandboxError
from skillopt_airflow.core.types import Status, Trajectory
from skillopt_airflow.sandbox.labels import FOLDER_LABEL, identity
from skillopt_airflow.store.corpora import SourceCorpus
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, failure
from tests.sandbox.fake_workload import (
    KEY,
    SECRET_ANSWER,
    FakeOperator,
    FakeWorkload,
    answer_all,
    leftovers,
    processes_of,
)


@pytest.mark.engine
def test_every_item_gets_a_row_and_nothing_stays(docker_host, client, workload):
    with ScriptedProvider(answer_all) as provider:
        fake = workload(provider, count=5, concurrency=3)
        seconds = FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(5)}
    assert {trajectory.answer for trajectory in fake.trajectories} == {"Eiffel"}
    assert [call.http_status for call in fake.calls] == [200] * 5
    assert sum(call.prompt_tokens for call in fake.calls) == 55
    assert seconds["wall"] == pytest.approx(seconds["model"] + seconds["container"])
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert leftovers(client, fake) == []


PROBE = """
import json, os, pathlib, socket
def attempt(action):
    try:
        action()
        return "allowed"
    except OSError as error:
        return error.strerror or str(error)
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
staged = {p.name: p.read_text() for p in pathlib.Path("/in").iterdir()}
facts = {
    "interfaces": os.listdir("/sys/class/net"), "caps": status["CapEff"], "uid": os.getuid(), "gid": os.getgid(),
    "no_new_privs": status["NoNewPrivs"], "bounding": status["CapBnd"],
    "write_root": attempt(lambda: open("/opt/skillopt/x", "w")),
    "write_in": attempt(lambda: open("/in/x", "w")),
    "corpus": {str(p.relative_to("/corpus")): p.read_text() for p in pathlib.Path("/corpus").rglob("*.txt")},
    "write_corpus": attempt(lambda: open("/corpus/x", "w")),
    "write_gateway": attempt(lambda: open("/gateway/x", "w")),
    "write_tmp": attempt(lambda: open("/tmp/x", "w")),
    "connect": attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1)),
    "environment": dict(os.environ), "staged": staged,
}
row = {"item_id": "i-0", "status": "ok", "messages": [{"role": "assistant", "content": json.dumps(facts)}]}
with open("/out/trajectories.jsonl", "w") as out:
    out.write(json.dumps(row) + "\\n")
"""


@pytest.mark.engine
def test_a_container_is_closed_and_holds_no_secret(docker_host, workload, program, tmp_path):
    (tmp_path / "documents" / "1944").mkdir(parents=True)
    (tmp_path / "documents" / "1944" / "march.txt").write_text("customs")
    fake = workload(None, image=program(PROBE))
    fake.corpus = SourceCorpus("documents", tmp_path, cast("Any", None))

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    facts = json.loads(fake.trajectories[0].messages[0].content)
    assert facts["interfaces"] == ["lo"]
    assert int(facts["caps"], 16) == int(facts["bounding"], 16) == 0
    assert facts["no_new_privs"] == "1"
    assert facts["uid"] != 0
    assert facts["gid"] != 0
    assert facts["write_root"] == facts["write_in"] == facts["write_gateway"] == "Read-only file system"
    assert facts["corpus"] == {"1944/march.txt": "customs"}
    assert facts["write_corpus"] == "Read-only file system"
    assert facts["write_tmp"] == "allowed"
    assert facts["connect"] == "Network is unreachable"
    assert KEY not in json.dumps(facts)
    assert SECRET_ANSWER not in json.dumps(facts)
    assert sorted(facts["staged"]) == ["items.jsonl", "settings.json", "skill.md"]
    assert json.loads(facts["staged"]["items.jsonl"]).keys() == {"id", "public"}


@pytest.mark.engine
def test_docker_knows_the_limits_and_no_secret(docker_host, client, workload):
    seen: list[Mapping[str, Any]] = []

    def inspect(asked: Asked) -> Reply:
        seen.extend(container.attrs for container in leftovers(client, fake))
        return answer_all(asked)

    with ScriptedProvider(inspect) as provider:
        fake = workload(provider, memory="256m", pids=64, cpus=0.5, output_mb=8)
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    (container,) = seen
    host = container["HostConfig"]
    assert KEY not in json.dumps(container)
    assert host["Memory"] == host["MemorySwap"] == 256 * 2**20
    assert (host["PidsLimit"], host["NanoCpus"], host["NetworkMode"]) == (64, 500_000_000, "none")
    assert host["ReadonlyRootfs"]
    assert {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}["fsize"] == 8 * 2**20
    assert host["LogConfig"]["Config"] == {"max-size": "1m", "max-file": "1"}
    assert container["Config"]["Labels"]["skillopt.run"] == fake.labels["run"]


@pytest.mark.engine
def test_the_key_is_nowhere_but_at_the_provider(docker_host, client, workload, caplog):
    caplog.set_level("DEBUG")
    seen: list[str] = []

    def look(asked: Asked) -> Reply:
        for container in leftovers(client, fake):
            seen.append(json.dumps(container.attrs) + json.dumps(client.api.history(container.attrs["Image"])))
            seen.extend(processes_of(client, container))
            folder = Path(container.labels[FOLDER_LABEL])
            files = [path for path in folder.rglob("*") if path.is_file()]
            seen.extend(path.read_text(errors="replace") for path in files)
        return failure(401, f"wrong key {KEY}")

    with ScriptedProvider(look) as provider:
        fake = workload(provider)
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert len(seen) >= 6
    assert any("Which tower?" in text for text in seen)
    assert not [text for text in seen if KEY in text]
    assert KEY not in caplog.text
    assert KEY not in "".join(row.model_dump_json() for row in fake.trajectories)


@pytest.mark.engine
def test_a_row_is_recorded_while_the_container_still_works(docker_host, workload):
    first_row_recorded = threading.Event()

    def second_waits(asked: Asked) -> Reply:
        if asked.number == 2 and not first_row_recorded.wait(60):
            return failure(400, "the first row was not recorded")
        return answer_all(asked)

    with ScriptedProvider(second_waits) as provider:
        fake = workload(provider, count=2, concurrency=1)
        fake.on_record = lambda rows: first_row_recorded.set() if rows else None
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert set(fake.statuses().values()) == {Status.OK}


GREEDY = """
with open("/out/trajectories.jsonl", "w") as out:
    out.write('{"item_id": "i-0", "status": "ok", "answer": "done"}\\n')
hoard = bytearray(b"x") * 2**31
"""


@pytest.mark.engine
def test_running_out_of_memory_fails_only_the_unfinished_items(docker_host, client, workload, program):
    fake = workload(None, count=3, image=program(GREEDY), memory="64m")

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.statuses() == {"i-0": Status.OK, "i-1": Status.SANDBOX_ERROR, "i-2": Status.SANDBOX_ERROR}
    assert fake.trajectories[-1].error == "the container ran out of memory (sandbox.memory = 64m)"
    assert leftovers(client, fake) == []


@pytest.mark.engine
def test_a_container_ends_at_its_wall_clock_limit(docker_host, client, workload, program):
    fake = workload(None, image=program("import time\ntime.sleep(600)\n"), timeout=1)

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.trajectories[0].status is Status.SANDBOX_ERROR
    assert "no item ended for 1 s (sandbox.timeout)" in fake.trajectories[0].error
    assert leftovers(client, fake) == []


@pytest.mark.engine
def test_a_container_ends_when_it_writes_too_much(docker_host, workload, program):
    code = """
import time
for n in range(3):
    with open(f"/out/{n}", "wb") as out:
        out.write(b"x" * 1000000)
time.sleep(600)
"""
    fake = workload(None, image=program(code), output_mb=1)

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert "more than 1 MB (sandbox.output_mb)" in fake.trajectories[0].error


@pytest.mark.engine
def test_a_talkative_container_is_not_held_up_and_its_exit_status_is_told(docker_host, workload, program):
    code = "for n in range(100000):\n    print('chatter', n)\nraise SystemExit(3)\n"
    fake = workload(None, image=program(code))

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert "exit status 3" in fake.trajectories[0].error


@pytest.mark.engine
def test_a_killed_task_leaves_no_container_and_no_made_up_rows(docker_host, client, workload):
    at_work, release = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Reply:
        at_work.set()
        release.wait(60)
        return answer_all(asked)

    raised: list[BaseException] = []

    def run() -> None:
        with suppress(SandboxError):
            try:
                operator.execute({})
            except SandboxError as error:
                raised.append(error)
                raise

    with ScriptedProvider(hang) as provider:
        fake = workload(provider, count=2)
        operator = FakeOperator(fake=fake, docker_url=docker_host)
        task = threading.Thread(target=run)
        task.start()
        assert at_work.wait(60)
        folder = Path(leftovers(client, fake)[0].labels[FOLDER_LABEL])
        operator.on_kill()
        gone = leftovers(client, fake)
        release.set()
        task.join()

    assert gone == []
    assert "stopped" in str(raised[0])
    assert fake.trajectories == []
    assert not folder.exists()


@pytest.mark.engine
def test_what_a_killed_worker_left_behind_is_removed_first(docker_host, client, workload, tmp_path):
    folder = tmp_path / "skillopt-earlier"
    folder.mkdir()
    with ScriptedProvider(answer_all) as provider:
        fake = workload(provider)
        labels = identity(fake.labels) | {FOLDER_LABEL: str(folder)}
        other = identity({**fake.labels, "chunk": "1"})
        sleep = ["python3", "-c", "import time; time.sleep(600)"]
        options = {"entrypoint": sleep, "network_mode": "none", "detach": True}
        left = client.containers.run(image.IMAGE, labels=labels, **options)
        beside = client.containers.run(image.IMAGE, labels=other, **options)
        try:
            FakeOperator(fake=fake, docker_url=docker_host).execute({})
            alive = {container.id for container in client.containers.list(ignore_removed=True)}
        finally:
            beside.remove(force=True)

    assert left.id not in alive
    assert beside.id in alive
    assert not folder.exists()


@pytest.mark.engine
def test_an_error_while_recording_ends_the_container_and_the_task(docker_host, client, workload):
    release = threading.Event()

    def second_hangs(asked: Asked) -> Reply:
        if asked.number == 2:
            release.wait(60)
        return answer_all(asked)

    def refuse(rows: Sequence[Trajectory]) -> None:
        raise SandboxError("the store is full")

    with ScriptedProvider(second_hangs) as provider:
        fake = workload(provider, count=2)
        fake.on_record = refuse
        with pytest.raises(SandboxError, match="the store is full"):
            FakeOperator(fake=fake, docker_url=docker_host).execute({})
        release.set()

    assert leftovers(client, fake) == []


@pytest.mark.engine
def test_a_missing_image_is_named(docker_host, workload):
    fake = workload(None, image="127.0.0.1:9/none:1")
    with pytest.raises(ImageMissing, match=r"127\.0\.0\.1:9/none:1"):
        FakeOperator(fake=fake, docker_url=docker_host).execute({})
    assert fake.trajectories == []


def test_a_missing_engine_is_named(workload):
    fake = workload(None)
    with pytest.raises(EngineUnavailable, match="DOCKER_HOST"):
        FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9").execute({})
    assert fake.trajectories == []


def test_stored_rows_need_no_container_and_no_image(workload):
    class Imageless(FakeWorkload):
        @property
        def image(self):
            raise ImageMissing("the engine has lost it")

    fake = workload(None, count=0)
    operator = FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9")
    fake.__class__ = Imageless
    assert operator.execute({}) == {"wall": 0.0, "model": 0.0, "container": 0.0}


@pytest.mark.engine
def test_items_wait_in_the_container_until_they_are_released(docker_host, client, workload):
    with ScriptedProvider(lambda asked: fake.answer(asked)) as provider:
        fake = workload(provider, count=5, concurrency=6)
        fake.released = 2

        def release(rows: Sequence[Trajectory]) -> None:
            fake.released = len(fake.trajectories) + 2

        fake.on_record = release
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(5)}
    assert max(fake.ahead) <= 2
    assert leftovers(client, fake) == []


@pytest.mark.engine
def test_a_settled_workload_ends_without_made_up_rows(docker_host, client, workload):
    with ScriptedProvider(answer_all) as provider:
        fake = workload(provider, count=12, concurrency=6)
        fake.released = 4
        fake.is_settled = lambda: len(fake.trajectories) >= 3
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert 3 <= len(fake.trajectories) <= 4
    assert set(fake.statuses().values()) == {Status.OK}
    assert len(provider.requests) <= 4
    assert leftovers(client, fake) == []


@pytest.mark.engine
def test_rows_of_one_container_settle_another_that_is_still_at_work(docker_host, client, workload):
    store: dict[str, Trajectory] = {}
    at_work, release = threading.Event(), threading.Event()

    def hang(asked: Asked) -> Reply:
        if asked.number == 2:
            at_work.set()
            release.wait(60)
        return answer_all(asked)

    def chunk(name: str, provider: ScriptedProvider) -> FakeWorkload:
        fake: FakeWorkload = workload(provider, count=4)
        fake.labels = {**fake.labels, "chunk": name}
        fake.on_record = lambda rows: store.update({f"{name}/{row.item_id}": row for row in rows})
        fake.is_settled = lambda: len(store) >= 4
        return fake

    with ScriptedProvider(answer_all) as fast, ScriptedProvider(hang) as slow:
        first, second = chunk("0", fast), chunk("1", slow)
        task = threading.Thread(target=FakeOperator(fake=second, docker_url=docker_host).execute, args=({},))
        task.start()
        assert at_work.wait(60)
        FakeOperator(fake=first, docker_url=docker_host).execute({})
        task.join(60)
        ended = not task.is_alive()
        release.set()
        task.join()

    assert ended
    assert list(second.statuses().items()) == [("i-0", Status.OK)]
    assert list(first.statuses().items())[:3] == [(f"i-{n}", Status.OK) for n in range(3)]
    assert leftovers(client, first) == leftovers(client, second) == []


def test_a_workload_that_is_settled_already_needs_no_container(workload):
    fake = workload(None, count=3)
    fake.is_settled = lambda: True
    seconds = FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9").execute({})
    assert seconds == {"wall": 0.0, "model": 0.0, "container": 0.0}
    assert fake.trajectories == []
