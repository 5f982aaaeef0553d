import json
import os
import signal
import threading

import pytest

from skillopt_airflow.core.types import Status
from skillopt_airflow.sandbox.labels import ITEM_LABEL
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider
from tests.sandbox.fake_workload import FakeOperator, answer_all, leftovers

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

    assert fake.statuses() == {
        "i-0": Status.OK,
        "i-1": Status.SANDBOX_ERROR,
        "i-2": Status.OK,
        "i-3": Status.OK,
    }
    assert fake.left == {f"i-{n}": {"out.txt": f"for i-{n}".encode()} for n in (0, 2, 3)}
    rows = {row.item_id: row for row in fake.trajectories}
    assert "exit status 7" in rows["i-1"].error
    assert rows["i-0"].files == ("out.txt",)
    assert json.loads(rows["i-0"].answer) == ["0", "0", "files", "files", "items.jsonl", "settings.json", "skill.md"]
    assert leftovers(client, fake) == []


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
