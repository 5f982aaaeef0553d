import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from local import image
from skillopt_airflow.core.errors import EngineUnavailable, ImageMissing
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.sandbox.docker.container import FOLDER_LABEL, ITEM_LABEL, identity
from skillopt_airflow.store.data.corpora import SourceCorpus
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
import json, os, pathlib
def attempt(path):
    try:
        return str(open(path, "w"))
    except OSError as error:
        return error.strerror
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
facts = {
    "rights": [status["CapEff"], status["CapBnd"], status["NoNewPrivs"]], "ids": [os.getuid(), os.getgid()],
    "corpus": {str(p.relative_to("/corpus")): p.read_text() for p in pathlib.Path("/corpus").rglob("*.txt")},
    "writes": [attempt(path) for path in ("/opt/skillopt/x", "/in/x", "/corpus/x", "/gateway/x")],
    "environment": dict(os.environ), "staged": {p.name: p.read_text() for p in pathlib.Path("/in").iterdir()},
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
    assert [int(word, 16) for word in facts["rights"]] == [0, 0, 1]
    assert 0 not in facts["ids"]
    assert facts["writes"] == ["Read-only file system"] * 4
    assert facts["corpus"] == {"1944/march.txt": "customs"}
    assert KEY not in json.dumps(facts)
    assert SECRET_ANSWER not in json.dumps(facts)
    assert sorted(facts["staged"]) == ["items.jsonl", "settings.json", "skill.md"]
    assert json.loads(facts["staged"]["items.jsonl"]).keys() == {"id", "public"}


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


def test_stored_rows_and_a_settled_workload_need_no_container_and_no_image(workload):
    class Imageless(FakeWorkload):
        @property
        def image(self):
            raise ImageMissing("the engine has lost it")

    stored, settled = workload(None, count=0), workload(None, count=3)
    settled.is_settled = lambda: True
    operators = [FakeOperator(fake=fake, docker_url="tcp://127.0.0.1:9") for fake in (stored, settled)]
    stored.__class__ = Imageless
    for operator in operators:
        assert operator.execute({}) == {"wall": 0.0, "model": 0.0, "container": 0.0}
    assert settled.trajectories == []
    # Another one names the engine that does not answer.
    with pytest.raises(EngineUnavailable, match="DOCKER_HOST"):
        FakeOperator(fake=workload(None), docker_url="tcp://127.0.0.1:9").execute({})


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


WORKS = """
import json, os, pathlib
(item,) = [json.loads(line) for line in open("/in/items.jsonl")]
if item["id"] == "i-1":
    raise SystemExit(7)
content = pathlib.Path("/in/files/0/in.txt").read_text()
pathlib.Path("/out/files/0/out.txt").write_text(content + " " + item["id"])
seen = sorted(os.listdir("/in") + os.listdir("/out") + os.listdir("/in/files") + os.listdir("/out/files"))
row = {"item_id": item["id"], "status": "ok", "answer": json.dumps(seen), "files": ["out.txt", "absent"]}
with open("/out/trajectories.jsonl", "w") as out:
    out.write(json.dumps(row) + "\\n")
"""


@pytest.mark.engine
def test_each_item_has_a_container_of_its_own_and_its_own_fate(docker_host, client, workload, program):
    fake = workload(None, count=4, concurrency=3, image=program(WORKS), memory="128m")
    fake.one_item_each, fake.public_files = True, {"in.txt": b"for"}

    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.statuses() == {"i-0": Status.OK, "i-1": Status.SANDBOX_ERROR, "i-2": Status.OK, "i-3": Status.OK}
    assert fake.left == {f"i-{n}": {"out.txt": f"for i-{n}".encode()} for n in (0, 2, 3)}
    rows = {row.item_id: row for row in fake.trajectories}
    assert "exit status 7" in rows["i-1"].error
    assert rows["i-0"].files == ("out.txt",)
    assert json.loads(rows["i-0"].answer) == ["0", "0", "files", "files", "items.jsonl", "settings.json", "skill.md"]
    assert leftovers(client, fake) == []


@pytest.mark.nightly
@pytest.mark.engine
def test_containers_of_one_task_work_at_the_same_time_and_no_more_than_allowed(docker_host, client, workload):
    together = threading.Barrier(2)
    most: list[set[str]] = []

    def meet(asked: Asked) -> Reply:
        most.append({container.labels[ITEM_LABEL] for container in leftovers(client, fake)})
        together.wait(60)
        return answer_all(asked)

    with ScriptedProvider(meet) as provider:
        fake = workload(provider, count=4, concurrency=2, memory="128m")
        fake.one_item_each = True
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(4)}
    assert max(len(labels) for labels in most) == 2
    assert set.union(*most) == {"0", "1", "2", "3"}
    assert len(fake.calls) == 4


@pytest.mark.nightly
@pytest.mark.engine
def test_a_settled_workload_begins_no_further_container(docker_host, client, workload):
    with ScriptedProvider(lambda asked: fake.answer(asked)) as provider:
        fake = workload(provider, count=6, concurrency=1, memory="128m")
        fake.one_item_each = True
        fake.is_settled = lambda: len(fake.trajectories) >= 3
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert 3 <= len(fake.trajectories) <= 4
    assert set(fake.statuses().values()) == {Status.OK}
    assert leftovers(client, fake) == []


@pytest.mark.nightly
@pytest.mark.engine
def test_a_task_that_takes_too_long_leaves_no_container(docker_host, client, workload):
    """Airflow raises the time-out of a task inside its main thread, from a signal."""

    class Timeout(BaseException):
        pass

    def raise_timeout(*_: object) -> None:
        raise Timeout

    release = threading.Event()

    def hang(asked: Asked) -> Reply:
        if asked.number == 2:
            os.kill(os.getpid(), signal.SIGALRM)
        release.wait(60)
        return answer_all(asked)

    before = signal.signal(signal.SIGALRM, raise_timeout)
    try:
        with ScriptedProvider(hang) as provider:
            fake = workload(provider, count=5, concurrency=2, memory="128m")
            fake.one_item_each = True
            with pytest.raises(Timeout):
                FakeOperator(fake=fake, docker_url=docker_host).execute({})
            left = leftovers(client, fake)
            release.set()
    finally:
        signal.signal(signal.SIGALRM, before)

    assert left == []
    assert fake.trajectories == []
