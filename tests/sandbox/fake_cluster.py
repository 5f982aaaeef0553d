"""A Kubernetes cluster of one node, as far as pods of sandboxes need one: its API over HTTP, and a kubelet that runs
containers as local processes whose mount paths are folders of its own.

It keeps to the rules that matter here: a pod waits for its Secret, init containers come in order, one whose
restartPolicy is Always goes on beside the next, and at the end they are stopped in the opposite order.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

from local.served import served

PROJECT = Path(__file__).parents[2]
VERSION = "1.33"
GRACE_SECONDS = 10
ENTRYPOINT = (sys.executable, "-m", "skillopt_airflow.rollout")

Document = dict[str, Any]


@dataclass
class FakeCluster:
    """Everything below one folder; `entrypoint` is what an image without a command runs, and may be replaced."""

    folder: Path
    entrypoint: Callable[[], tuple[str, ...]] = lambda: ENTRYPOINT
    pods: dict[str, "Kubelet"] = field(default_factory=dict)
    secrets: dict[str, Document] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request."""
    past: list[Document] = field(default_factory=list)
    """Every pod and secret that was ever asked for."""
    refuse: Mapping[str, int] = field(default_factory=dict)
    """Status by kind of object that the API answers to its creation."""
    unwell: list[int] = field(default_factory=list)
    """Statuses that the API answers to the next questions about one pod; at 0 it hangs up."""
    busy: list[int | None] = field(default_factory=list)
    """Statuses that the API answers to the next creations; at 0 it creates and hangs up, at None all is well."""
    unpullable: str = ""
    """Image that cannot be pulled."""
    pulled_late: str = ""
    """Image whose first pull fails."""

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._serving = served(self._server)

    def __enter__(self) -> "FakeCluster":
        self._serving.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for name in list(self.pods):
            self.delete_pod(name, 0)
        self._serving.__exit__(*error)

    @property
    def connection(self) -> str:
        """The Airflow connection that leads here."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        return json.dumps(
            {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(config), "namespace": "skills"}}
        )

    def create(self, kind: str, document: Document) -> tuple[int, Document]:
        self.past.append(document)
        if kind in self.refuse:
            return self.refuse[kind], {"kind": "Status", "status": "Failure", "reason": "Forbidden"}
        kubernetes_validate.validate(document, VERSION, strict=True)
        name = document["metadata"]["name"]
        if name in (self.secrets if kind == "secrets" else self.pods):
            return 409, {"kind": "Status", "status": "Failure", "reason": "AlreadyExists"}
        document["metadata"]["uid"] = str(uuid.uuid4())
        if kind == "secrets":
            self.secrets[name] = document
            return 201, document
        self.pods[name] = Kubelet(self, document)
        self.pods[name].start()
        return 201, self.pods[name].document

    def delete_pod(self, name: str, grace: int | None) -> bool:
        pod = self.pods.get(name)
        if pod is None:
            return False
        pod.stop(grace)
        return True

    def left(self) -> dict[str, "Kubelet"]:
        """The pods that stay; as in any cluster, one whose removal was asked for goes a moment later."""
        for pod in list(self.pods.values()):
            if pod.is_deleted:
                pod.join(10)
        return self.pods

    def gone(self, pod: "Kubelet") -> None:
        """Objects that the pod owns go with it."""
        uid = pod.document["metadata"]["uid"]
        self.pods.pop(pod.document["metadata"]["name"], None)
        for name, secret in list(self.secrets.items()):
            if any(owner["uid"] == uid for owner in secret["metadata"].get("ownerReferences", ())):
                self.secrets.pop(name, None)


class Kubelet(threading.Thread):
    """Runs one pod."""

    def __init__(self, cluster: FakeCluster, document: Document) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.document = document
        # Short: a socket's path has at most 107 bytes.
        self.folder = cluster.folder / uuid.uuid4().hex[:6]
        self.log = self.folder / "log"
        self.status: Document = {"phase": "Pending", "initContainerStatuses": [], "containerStatuses": []}
        document["status"] = self.status
        self._sidecars: list[subprocess.Popen[bytes]] = []
        self._main: subprocess.Popen[bytes] | None = None
        self._deleted = threading.Event()
        self._at_once = False

    @property
    def spec(self) -> Document:
        spec: Document = self.document["spec"]
        return spec

    def run(self) -> None:
        try:
            self._prepare()
            if self._initialise():
                self._run_main()
            self._stop_sidecars()
        except Exception as error:  # noqa: BLE001 - told to whoever looks at the pod
            self.status.update(phase="Failed", reason="FakeKubelet", message=repr(error))
        if self._deleted.is_set():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.cluster.gone(self)

    @property
    def is_deleted(self) -> bool:
        """Whether its removal was asked for."""
        return self._deleted.is_set()

    def stop(self, grace: int | None) -> None:
        self._at_once = grace == 0
        if not self.is_alive():
            self.cluster.gone(self)
        self._deleted.set()
        if self._main is not None:
            self._main.kill()
        if self._at_once:
            for process in self._sidecars:
                process.kill()

    def _prepare(self) -> None:
        for volume in self.spec["volumes"]:
            (self.folder / "volumes" / volume["name"]).mkdir(parents=True)
        for container in [*self.spec["initContainers"], *self.spec["containers"]]:
            if container["image"] == self.cluster.pulled_late:
                self.status["initContainerStatuses"] = [_status_of(container, _waiting("ImagePullBackOff"))]
                self._deleted.wait(0.3)
            if container["image"] == self.cluster.unpullable:
                self.status["initContainerStatuses"] = [_status_of(container, _waiting("ImagePullBackOff"))]
                self._deleted.wait()
                return
        self.status["initContainerStatuses"] = []
        name = next(volume["secret"]["secretName"] for volume in self.spec["volumes"] if "secret" in volume)
        while name not in self.cluster.secrets and not self._deleted.wait(0.01):
            pass
        if not self._deleted.is_set():
            for key, text in self.cluster.secrets[name]["stringData"].items():
                (self.folder / "volumes" / "secret" / key).write_text(text)

    def _initialise(self) -> bool:
        for container in self.spec["initContainers"]:
            if self._deleted.is_set():
                return False
            process = self._start(container)
            if container.get("restartPolicy") == "Always":
                self._sidecars.append(process)
                if not self._await_probe(container):
                    self.status.update(phase="Failed", reason="FakeKubelet", message="a probe failed")
                    return False
                continue
            status = process.wait()
            terminated = {"terminated": {"exitCode": status}}
            self.status["initContainerStatuses"].append(_status_of(container, terminated))
            if status != 0:
                self.status["phase"] = "Failed"
                return False
        return not self._deleted.is_set()

    def _await_probe(self, container: Document) -> bool:
        probe = container.get("startupProbe")
        latest = time.monotonic() + (probe["periodSeconds"] * probe["failureThreshold"] if probe else 0)
        while probe and not self._deleted.wait(0.05) and time.monotonic() < latest:
            command = self._mapped(container, probe["exec"]["command"])
            if subprocess.run(command, check=False).returncode == 0:
                return True
        return not probe

    def _run_main(self) -> None:
        (container,) = self.spec["containers"]
        self._main = self._start(container)
        self.status["phase"] = "Running"
        while self._main.poll() is None:
            self._deleted.wait(0.05) if not self._deleted.is_set() else time.sleep(0.05)
        code = self._main.returncode
        terminated = {"exitCode": 128 - code if code < 0 else code, "reason": "Error" if code else "Completed"}
        self.status["containerStatuses"] = [_status_of(container, {"terminated": terminated})]

    def _stop_sidecars(self) -> None:
        for process in reversed(self._sidecars):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        states = [one["state"]["terminated"]["exitCode"] for one in self.status["containerStatuses"]]
        self.status["phase"] = "Succeeded" if states == [0] else "Failed"

    def _start(self, container: Document) -> subprocess.Popen[bytes]:
        given = container.get("command") or container.get("args", [])
        command = [*(() if "command" in container else self.cluster.entrypoint()), *self._mapped(container, given)]
        with self.log.open("ab") if "command" not in container else (self.folder / "helpers.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=PROJECT,
                env={
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "PYTHONPATH": f"{PROJECT / 'include'}:{PROJECT}",
                    "HOME": str(self.folder),
                },
                stdout=log,
                stderr=log,
            )

    def _mapped(self, container: Document, command: list[str]) -> list[str]:
        """The command with its mount paths as folders of this machine."""
        paths = {}
        for mount in container["volumeMounts"]:
            path = self.folder / "volumes" / mount["name"]
            paths[mount["mountPath"]] = str(path / mount["subPath"] if "subPath" in mount else path)
        pattern = re.compile(r"(?<![\w/])(" + "|".join(map(re.escape, sorted(paths, key=len, reverse=True))) + r")\b")
        return [pattern.sub(lambda found: paths[found[1]], word) for word in command]


def _waiting(reason: str) -> Document:
    return {"waiting": {"reason": reason, "message": "not found"}}


def _status_of(container: Document, state: Document) -> Document:
    named = {"name": container["name"], "image": container["image"], "imageID": container["image"]}
    return named | {"state": state, "ready": False, "restartCount": 0}


class _Handler(BaseHTTPRequestHandler):
    cluster: FakeCluster
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        kind, name, part, query = self._asked()
        if kind == "pods" and not name:
            wanted = dict(label.split("=") for label in query["labelSelector"][0].split(","))
            found = [pod.document for pod in list(self.cluster.pods.values()) if self._has(pod.document, wanted)]
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "items": found})
            return
        pod = self.cluster.pods.get(name)
        if not part and self.cluster.unwell:
            self._fail(self.cluster.unwell.pop(0))
        elif pod is None:
            self._answer(404, {"kind": "Status", "reason": "NotFound"})
        elif part == "log" and not pod.log.exists():
            self._answer(400, {"kind": "Status", "reason": "BadRequest"})
        elif part == "log":
            self._send(200, "text/plain", pod.log.read_bytes()[: int(query["limitBytes"][0])])
        else:
            self._answer(200, pod.document)

    def do_POST(self) -> None:
        kind, _, _, _ = self._asked()
        document = self._body()
        status = self.cluster.busy.pop(0) if self.cluster.busy else None
        if status:
            self._fail(status)
            return
        made = self.cluster.create(kind, document)
        if status is None:
            self._answer(*made)
        else:
            self._fail(0)

    def do_DELETE(self) -> None:
        kind, name, _, query = self._asked()
        body = self._body()
        grace = query.get("gracePeriodSeconds", [body.get("gracePeriodSeconds")])[0]
        if kind == "secrets":
            there = self.cluster.secrets.pop(name, None) is not None
        else:
            there = self.cluster.delete_pod(name, None if grace is None else int(grace))
        self._answer(200 if there else 404, {"kind": "Status", "apiVersion": "v1"})

    def _fail(self, status: int) -> None:
        if status:
            self._answer(status, {"kind": "Status", "status": "Failure"})
        else:
            self.close_connection = True

    def log_message(self, *words: object) -> None:
        pass

    @staticmethod
    def _has(document: Document, wanted: Mapping[str, str]) -> bool:
        return wanted.items() <= document["metadata"]["labels"].items()

    def _asked(self) -> tuple[str, str, str, dict[str, list[str]]]:
        self.cluster.seen.append((self.command, self.path))
        address = urlsplit(self.path)
        parts = address.path.removeprefix("/api/v1/namespaces/").split("/")
        _, kind, name, part, *_ = [*parts, "", "", ""]
        return kind, name, part, parse_qs(address.query)

    def _body(self) -> Document:
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length)) if length else {}

    def _answer(self, status: int, document: Document) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
