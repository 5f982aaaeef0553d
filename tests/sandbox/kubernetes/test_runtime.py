"""The operator against an API server of the test's own whose node runs the containers as local processes, with a real
S3 server between pod and task and a scripted model server behind the gateway.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import yaml

from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, ImageMissing, SandboxError
from skillopt_airflow.core.values.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox.docker.container import identity
from skillopt_airflow.sandbox.kubernetes import runtime as kubernetes_module
from skillopt_airflow.sandbox.kubernetes.pod import EXPIRES_LABEL, pod_labels, workload_label
from skillopt_airflow.sandbox.kubernetes.runtime import PodRuntime
from skillopt_airflow.sandbox.staging import Files, temporary_folder
from skillopt_airflow.store.data.corpora import SourceCorpus, StoredCorpus, store_corpus
from skillopt_airflow.store.objects import ObjectStore
from tests.gateway.scripted_provider import ScriptedProvider
from tests.sandbox.fake_cluster import FakeCluster
from tests.sandbox.fake_workload import KEY, SECRET_ANSWER, FakeOperator, FakeWorkload, answer_all

pytestmark = pytest.mark.slow

MANIFESTS = Path(__file__).parents[3] / "docker" / "kubernetes.yaml"
IMAGE = "registry.example/skillopt-sandbox@sha256:" + "0" * 64


Task = Callable[..., FakeOperator]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(kubernetes_module, "POLL_SECONDS", 0.05)
    with TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as node, FakeCluster(Path(node)) as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", cluster.connection)
        yield cluster


@pytest.fixture
def task(cluster: FakeCluster, store: ObjectStore, workload: Callable[..., FakeWorkload], tmp_path: Path) -> Task:
    """A task whose pods run other code than the rollout program; its arguments are the same."""

    def make(code: str, count: int = 1, **options: Any) -> FakeOperator:
        (tmp_path / "program.py").write_text(code)
        cluster.entrypoint = lambda: ("python3", f"{tmp_path}/program.py")
        return FakeOperator(fake=workload(None, count=count, image=IMAGE, engine="kubernetes", **options), store=store)

    return make


def test_every_item_gets_a_row_and_nothing_stays(cluster, store, workload):
    with ScriptedProvider(answer_all) as provider:
        fake = workload(provider, count=5, concurrency=3, image=IMAGE, engine="kubernetes")
        # As a worker that died leaves it.
        store.put_bytes(f"sandboxes/{workload_label(identity(fake.labels))}/earlier/inputs.tar", b"left")
        FakeOperator(fake=fake, store=store).execute({})

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(5)}
    assert {trajectory.answer for trajectory in fake.trajectories} == {"Eiffel"}
    assert [call.http_status for call in fake.calls] == [200] * 5
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (cluster.left(), cluster.secrets, store.list_keys("")) == ({}, {}, [])
    # It needs all that the Role allows, and no more.
    [role] = [one for one in yaml.safe_load_all(MANIFESTS.read_text()) if one["kind"] == "Role"]
    allowed = {(thing, verb) for rule in role["rules"] for thing in rule["resources"] for verb in rule["verbs"]}
    assert {right(method, path) for method, path in cluster.seen} == allowed
    # The pod holds no secret, and its own one goes with it.
    pod, secret = cluster.past
    assert (pod["kind"], secret["kind"]) == ("Pod", "Secret")
    assert pod["metadata"]["namespace"] == secret["metadata"]["namespace"] == "skills"
    assert KEY not in json.dumps(pod)
    assert SECRET_ANSWER not in json.dumps(cluster.past)
    assert KEY in secret["stringData"]["gateway.json"]
    assert KEY not in secret["stringData"]["courier.json"]
    assert secret["metadata"]["ownerReferences"][0]["name"] == pod["metadata"]["name"]


def right(method: str, path: str) -> tuple[str, str]:
    """The resource and the verb of a request, as Kubernetes' roles name them."""
    kind, *below = urlsplit(path).path.removeprefix("/api/v1/namespaces/").split("/")[1:]
    verb = {"POST": "create", "DELETE": "delete", "GET": "get" if below else "list"}[method]
    return "/".join([kind, *below[1:]]), verb


FILES = """
import json, pathlib, sys
inputs, outputs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
for index, line in enumerate((inputs / "items.jsonl").read_text().splitlines()):
    item = json.loads(line)["id"]
    given = (inputs / "files" / str(index) / "table.csv").read_text()
    (outputs / "files" / str(index) / "result.csv").write_text(given + item)
    (outputs / "files" / str(index) / "link.csv").symlink_to("/etc/passwd")
    row = {"item_id": item, "status": "ok", "files": ["result.csv", "link.csv", "missing.csv"]}
    with (outputs / "trajectories.jsonl").open("a") as out:
        out.write(json.dumps(row) + chr(10))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("one_item_each", [False, True])
def test_files_go_in_and_come_out_and_links_stay(cluster, task, one_item_each):
    operator = task(FILES, count=3, concurrency=2)
    fake = operator.fake
    fake.public_files, fake.one_item_each = {"table.csv": b"1,2,"}, one_item_each
    operator.execute({})

    assert fake.statuses() == {f"i-{n}": Status.OK for n in range(3)}
    assert fake.left == {f"i-{n}": {"result.csv": f"1,2,i-{n}".encode()} for n in range(3)}
    assert len([one for one in cluster.past if one["kind"] == "Pod"]) == (3 if one_item_each else 1)


READS = """
import json, pathlib, sys
found = {str(path.relative_to(sys.argv[6])): path.read_text() for path in pathlib.Path(sys.argv[6]).rglob("*.txt")}
said = json.dumps([sys.argv[5], found])
row = {"item_id": "i-0", "status": "ok", "messages": [{"role": "assistant", "content": said}]}
(pathlib.Path(sys.argv[2]) / "trajectories.jsonl").write_text(json.dumps(row) + chr(10))
"""


@pytest.mark.nightly
def test_a_corpus_is_shipped_into_a_pod_or_the_items_say_why_not(store, task, tmp_path):
    (tmp_path / "documents" / "1944").mkdir(parents=True)
    (tmp_path / "documents" / "1944" / "march.txt").write_text("customs")
    sha256 = store_corpus(store, "own/", SourceCorpus("documents", tmp_path, cast("Any", None)))
    operator = task(READS)
    fake = operator.fake
    fake.corpus = StoredCorpus(store, "own/", sha256)
    operator.execute({})

    said = json.loads(fake.trajectories[0].messages[0].content)
    assert said == ["--corpus", {"1944/march.txt": "customs"}]
    assert all(key.startswith("own/corpora/") for key in store.list_keys(""))

    store.delete(fake.corpus.archive_keys[0])
    fake.trajectories.clear()
    operator.execute({})
    assert fake.statuses() == {"i-0": Status.SANDBOX_ERROR}
    assert "fetch its inputs" in fake.trajectories[0].error


LINKED = """
import os, pathlib, sys
os.symlink(sys.argv[2] + "/../../../linked", sys.argv[2] + "/trajectories.jsonl")
sys.exit(3)
"""


@pytest.mark.nightly
def test_a_link_in_the_place_of_the_rows_is_not_followed(cluster, task):
    (cluster.folder / "linked").write_text('{"item_id": "i-0", "status": "ok", "answer": "stolen"}\n')
    operator = task(LINKED)
    operator.execute({})
    assert operator.fake.statuses() == {"i-0": Status.SANDBOX_ERROR}
    assert "exit status 3" in operator.fake.trajectories[0].error


class Breaking(PodRuntime):
    """Its gateway tells of a call, and then its first pod is refused."""

    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Any:
        numbers: dict[str, Any] = {"http_status": 200, "attempts": 1, "started": 0.0, "seconds": 1.0}
        self._on_call(ModelCall(role="target", stage="rollout", model="m", **numbers))
        raise SandboxError("no node for a pod")


def test_calls_are_stored_though_a_pod_was_refused(cluster, store, workload, monkeypatch):
    monkeypatch.setattr(kubernetes_module, "PodRuntime", Breaking)
    fake = workload(None, image=IMAGE, engine="kubernetes")

    with pytest.raises(SandboxError, match="no node for a pod"):
        FakeOperator(fake=fake, store=store).execute({})

    assert [call.http_status for call in fake.calls] == [200]


SLOW = """
import sys, time
with open(sys.argv[2] + "/trajectories.jsonl", "w") as out:
    out.write('{"item_id": "i-0", "status": "ok"}\\n')
time.sleep(600)
"""


@pytest.mark.nightly
def test_a_pod_ends_at_its_wall_clock_limit_and_what_it_wrote_counts(cluster, task):
    operator = task(SLOW, count=2, timeout=1)
    operator.execute({})
    assert operator.fake.statuses() == {"i-0": Status.OK, "i-1": Status.SANDBOX_ERROR}
    assert "1 s (sandbox.timeout)" in operator.fake.trajectories[1].error
    # So does one once no further row matters, whose rows are recorded while it works.
    operator = task(SLOW, count=2)
    operator.fake.is_settled = lambda: bool(operator.fake.trajectories)
    operator.execute({})
    assert operator.fake.statuses() == {"i-0": Status.OK}
    assert cluster.left() == {}


@pytest.mark.nightly
def test_a_stopped_task_leaves_no_pod(cluster, task):
    operator = task(SLOW, count=2)
    killer = threading.Thread(target=operator.on_kill)

    def stop(rows: Sequence[Trajectory]) -> None:
        if rows and killer.ident is None:
            killer.start()

    operator.fake.on_record = stop
    with pytest.raises(SandboxError, match="the task was stopped"):
        operator.execute({})
    killer.join()

    assert (cluster.left(), cluster.secrets) == ({}, {})


def test_what_a_killed_attempt_left_is_removed_first(cluster, task):
    operator = task(SLOW)
    mine, others = pod_labels(identity(operator.fake.labels), 4e9), pod_labels(identity({"run": "another"}), 4e9)
    expired = others | {EXPIRES_LABEL: "1000"}
    for name, labels in (("mine", mine), ("others", others), ("expired", expired)):
        cluster.create("pods", bare_pod(name, labels))

    with temporary_folder() as folder, operator.open_runtime(operator.fake, folder, 1):
        pass
    assert set(cluster.left()) == {"others"}


def bare_pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    container = {"name": "rollout", "image": IMAGE, "volumeMounts": []}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "initContainers": [],
            "containers": [container],
            "volumes": [{"name": "secret", "secret": {"secretName": "never-made"}}],
        },
    }


@pytest.mark.nightly
def test_a_cluster_that_cannot_answer_for_a_while_costs_no_item(cluster, task):
    operator = task(FILES)
    operator.fake.public_files, cluster.pulled_late = {"table.csv": b"1,2,"}, IMAGE
    # The client itself asks three times again where the connection breaks.
    cluster.unwell = [500, 503, 504, 429, 0, 0, 0, 0, 503]
    # Pod and Secret are made at the second try, but no one hears of it.
    cluster.busy = [429, 0, None, 503, 0]
    operator.execute({})
    assert operator.fake.statuses() == {"i-0": Status.OK}
    assert (cluster.unwell, cluster.busy, cluster.left(), cluster.secrets) == ([], [], {}, {})


def test_a_cluster_that_cannot_answer_for_long_is_not_one_without_rights(cluster, store, workload, monkeypatch):
    monkeypatch.setattr(kubernetes_module, "RETRY_SECONDS", 0.2)
    cluster.unwell = [503] * 1000
    with pytest.raises(EngineUnavailable, match="503"):
        FakeOperator(fake=workload(None, image=IMAGE, engine="kubernetes"), store=store).execute({})
    assert len(cluster.unwell) < 999
    assert cluster.left() == {}


def test_inputs_do_not_stay_in_the_store_if_their_pod_cannot_be_made(cluster, store, workload):
    fake = workload(None, image=IMAGE, engine="kubernetes")
    fake.search = object()
    with pytest.raises(ConfigError, match=r"search\.conn_id"):
        FakeOperator(fake=fake, store=store).execute({})
    assert (cluster.left(), store.list_keys("")) == ({}, [])


def test_a_missing_image_a_refusal_and_a_silent_cluster_are_told_apart(cluster, store, workload, monkeypatch):
    monkeypatch.setattr(kubernetes_module, "PULL_SECONDS", 0.5)
    fake = workload(None, image=IMAGE, engine="kubernetes")
    cluster.unpullable = fake.limits.gateway_image
    with pytest.raises(ImageMissing, match=r"skillopt-gateway:latest .* courier"):
        FakeOperator(fake=fake, store=store).execute({})
    cluster.unpullable = ""
    cluster.refuse = {"secrets": 403}
    with pytest.raises(SandboxError, match="403") as refused:
        FakeOperator(fake=fake, store=store).execute({})
    assert KEY not in str(refused.value)
    assert cluster.left() == {}

    silent = cluster.connection.replace("127.0.0.1:", "127.0.0.1:1")
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", silent)
    with pytest.raises(EngineUnavailable, match=r"sandbox\.conn_id"):
        FakeOperator(fake=fake, store=store).execute({})
    assert fake.trajectories == []
