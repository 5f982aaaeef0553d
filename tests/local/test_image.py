import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import pytest

from local import image
from local.served import served
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.errors import ConfigError, ImageMissing

PINNED = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==([^\s;]+)", re.MULTILINE)

NOT_COMPILED = """
import os, sys
import skillopt_airflow.rollout.program, skillopt_airflow.rollout.harnesses.chat
files = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
print([name for name, file in files.items() if file and not os.path.exists(file)])
"""
"""Names the imported modules without bytecode, those of Python's own library too."""


def pins(path: Path) -> set[tuple[str, str]]:
    return set(PINNED.findall(path.read_text()))


def test_the_image_gets_the_program_and_no_data():
    files = {str(path) for path in image.program_files(image.ROOT)}

    assert {
        "skillopt_airflow/rollout/__main__.py",
        "skillopt_airflow/core/values/types.py",
        "skillopt_airflow/project/benchmarks/searchqa/adapter.py",
    } <= files
    assert all(name.endswith(".py") for name in files)
    folders = ("skillopt_airflow/store", "skillopt_airflow/sandbox", "skillopt_airflow/models", "local")
    assert not any(name.startswith(folders) for name in files)
    benchmark_files = {Path(name).name for name in files if name.startswith("skillopt_airflow/project/")}
    assert benchmark_files == {"adapter.py", "tools.py", "worlds.py"}


def test_the_image_gets_the_adapters_of_the_benchmarks_that_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = tmp_path / "mine"
    own.mkdir()
    (own / "adapter.py").write_text("BENCHMARK = 1\n")
    monkeypatch.setenv(LIST_VARIABLE, f"searchqa,{own}")
    adapters = {place.parent.name for place in image.program_files(image.ROOT) if place.name == "adapter.py"}
    before = image.inputs_hash(image.ROOT, "codex")

    assert adapters == {"searchqa", "mine"}
    (own / "adapter.py").write_text("BENCHMARK = 2\n")
    assert image.inputs_hash(image.ROOT, "codex") != before


def test_no_image_is_built_for_a_folder_that_is_no_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LIST_VARIABLE, f"searchqa,{tmp_path / 'mine'}")
    with pytest.raises(ConfigError, match="/mine "):
        image.program_files(image.ROOT)


def test_the_gateways_image_gets_what_calls_a_model():
    files = {str(path) for path in image.gateway_files(image.ROOT)}

    assert {
        "skillopt_airflow/gateway/model_gateway.py",
        "skillopt_airflow/gateway/upstream.py",
        "skillopt_airflow/core/values/types.py",
    } <= files
    folders = ("local/standin", "skillopt_airflow/rollout", "skillopt_airflow/project")
    assert not any(name.startswith(folders) for name in files)
    sandbox = {name.removeprefix("skillopt_airflow/sandbox/") for name in files if "/sandbox/" in name}
    assert sandbox == {
        "__init__.py",
        "untrusted_output.py",
        "task_workload.py",
        "kubernetes/__init__.py",
        "kubernetes/courier.py",
    }


@pytest.mark.parametrize("name", ["sandbox", "gateway"])
def test_packages_have_the_versions_of_the_lock(name: str):
    (requirements,) = image.RECIPES[name].requirements
    inside, lock = pins(image.ROOT / requirements), pins(image.ROOT / "requirements.txt")
    assert "pydantic-core" in dict(inside)
    assert inside - lock == set()


def test_the_image_of_airflow_has_the_lock_of_production_and_drivers_of_its_database():
    lock, drivers = (pins(image.ROOT / path) for path in image.RECIPES["airflow"].requirements)
    assert {"apache-airflow", "apache-airflow-providers-celery"} <= dict(lock).keys()
    assert dict(drivers).keys() == {"asyncpg", "psycopg", "psycopg-binary", "psycopg2-binary"}
    assert drivers <= pins(image.ROOT / "requirements-local.txt")
    assert {str(path) for path in image.airflow_files(image.ROOT)} == {
        f"{path.parent.name}/{path.name}"
        for folder in ("dags", "plugins")
        for path in image.ROOT.glob(f"{folder}/*.py")
    }


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["sandbox", "codex", "airflow"])
def test_a_changed_input_is_another_image(tmp_path: Path, name: str):
    for path in image.input_files(image.ROOT, name).values():
        copy = tmp_path / path.relative_to(image.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = image.inputs_hash(tmp_path, name)

    assert before == image.inputs_hash(image.ROOT, name)
    (tmp_path / "include/skillopt_airflow/rollout/new.py").write_text("")
    assert image.inputs_hash(tmp_path, name) != before
    (tmp_path / "include/skillopt_airflow/rollout/new.py").unlink()
    assert image.inputs_hash(tmp_path, name) == before


def test_an_engine_that_is_gone_is_explained(tmp_path: Path):
    with pytest.raises(ImageMissing, match="tcp://127"):
        image.ensure(tmp_path, "tcp://127.0.0.1:9", print)


class StallingEngine(BaseHTTPRequestHandler):
    """Begins to pull, and then nothing comes any more."""

    protocol_version = "HTTP/1.1"
    is_over = threading.Event()

    def do_GET(self) -> None:
        version = b'{"ApiVersion": "1.44"}'
        self.send_response(200)
        self.send_header("content-length", str(len(version)))
        self.end_headers()
        self.wfile.write(version)

    def do_POST(self) -> None:
        event = b'{"status": "Pulling"}'
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.is_over.wait()

    def log_message(self, *_: object) -> None:
        """It is no log of the test's."""


def test_a_registry_that_stalls_in_the_middle_of_a_pull_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image, "SILENT_SECONDS", 0.5)
    with served(ThreadingHTTPServer(("127.0.0.1", 0), StallingEngine)) as server:
        reason = image._pull(f"tcp://127.0.0.1:{server.server_port}")
        StallingEngine.is_over.set()
    assert reason == "no registry answered in 0.5 s"


def test_a_base_that_was_named_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    labels: dict[str, str] = {}
    made: list[tuple[str, str]] = []

    def make(client: Any, docker_host: str, home: Path, report: Any, name: str, inputs: str, base: str) -> None:
        made.append((name, base))
        labels[image.RECIPES[name].image] = inputs

    engine = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr("local.image.docker.DockerClient", lambda **_: engine)
    monkeypatch.setattr(image, "_make", make)
    monkeypatch.setattr(image, "_built_from", lambda client, name: labels.get(name))

    def ensure(*names: str, base: str = "") -> list[tuple[str, str]]:
        made.clear()
        image.ensure(tmp_path, "tcp://127.0.0.1:9", print, names, base)
        return list(made)

    assert ensure(base="unused") == [("sandbox", "")]
    assert ensure("sandbox", base="mirror.corp/python") == [("sandbox", "mirror.corp/python")]
    assert ensure() == []
    assert ensure("codex", "gateway") == [("codex", ""), ("gateway", "")]
    labels[image.IMAGE] = "other inputs on mirror.corp/python"
    assert ensure() == [("sandbox", "mirror.corp/python")]
    assert ensure("sandbox", base=image.BASE) == [("sandbox", image.BASE)]


@pytest.mark.parametrize(
    ("name", "base", "network"),
    [
        ("sandbox", image.BASE, "host"),
        ("sandbox", "registry.example.com/python", "host"),
        ("sandbox", image.BOOTSTRAPPED_BASE, "none"),
        ("codex", image.IMAGE, "none"),
        ("gateway", image.BASE, "none"),
    ],
)
def test_the_sandbox_image_alone_is_built_with_a_network_and_where_its_base_may_lack_git(
    name: str, base: str, network: str, tmp_path: Path
):
    built: dict[str, Any] = {}
    client = SimpleNamespace(images=SimpleNamespace(build=lambda **options: built.update(options)))
    image._build(cast("docker.DockerClient", client), tmp_path, base, image.RECIPES[name].image, "inputs")
    assert built["network_mode"] == network
    assert built["buildargs"] == {"BASE": base}


@pytest.mark.parametrize(
    ("has_git", "installs", "ran"),
    [
        (True, "exit 1", []),
        (False, "exit 1", ["apt-get update", "rm"]),
        (
            False,
            'echo "#!/bin/sh" > ${0%/*}/git; /bin/chmod 755 ${0%/*}/git',
            ["apt-get update", "apt-get install", "rm"],
        ),
    ],
    ids=["git is there", "no mirror answers", "git is installed"],
)
def test_the_sandbox_image_gets_git_where_its_base_has_none(
    has_git: bool, installs: str, ran: list[str], tmp_path: Path
):
    """The Dockerfile's own line, by a shell that finds nothing but the test's commands."""
    text = (image.ROOT / image.DOCKERFILE).read_text()
    (line,) = re.findall(r"^RUN (command -v git (?:.*\\\n)+.*\n)", text, re.MULTILINE)
    log = tmp_path / "log"
    commands = {"apt-get": f'echo "apt-get $1" >> {log}; {installs}', "rm": f"echo rm >> {log}"}
    commands |= {"timeout": 'shift; exec "$@"'} | ({"git": ""} if has_git else {})
    for command, body in commands.items():
        (tmp_path / command).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / command).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", line], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert (log.read_text().splitlines() if log.exists() else []) == ran
    assert ("git cannot be installed" in done.stdout) == (ran == ["apt-get update", "rm"])


@pytest.mark.engine
def test_a_second_build_finds_the_first(docker_host: str):
    said: list[str] = []
    image.ensure(image.ROOT / ".local", docker_host, said.append)
    assert said == []


@pytest.mark.engine
def test_the_image_is_ready_to_run(docker_host: str):
    client = docker.DockerClient(base_url=docker_host)
    try:
        attributes = client.images.get(image.IMAGE).attrs["Config"]
        code = (
            "import importlib.util as u, sys; print(sys.version_info[:2], u.find_spec('airflow'), u.find_spec('pip'))"
        )
        said = client.containers.run(
            image.IMAGE, ["-c", code], entrypoint="python3", network_mode="none", remove=True
        ).decode()
        not_compiled = client.containers.run(
            image.IMAGE, ["-c", NOT_COMPILED], entrypoint="python3", network_mode="none", remove=True
        ).decode()
    finally:
        client.close()
    assert attributes["User"] == "10001:10001"
    assert attributes["StopSignal"] == "SIGKILL"
    assert said.startswith("(3, ")
    assert "None" in said
    assert not_compiled.strip() == "[]"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("harness", "program", "version"), [("codex", "codex", "0.169.0"), ("claude_code", "claude", "2.1.197")]
)
def test_a_cli_runs_alone_in_its_image(cli_docker_host: str, harness: str, program: str, version: str):
    client = docker.DockerClient(base_url=cli_docker_host)
    try:
        said = client.containers.run(
            image.RECIPES[harness].image,
            ["--version"],
            entrypoint=program,
            network_mode="none",
            read_only=True,
            remove=True,
        ).decode()
        user = client.images.get(image.RECIPES[harness].image).attrs["Config"]["User"]
    finally:
        client.close()
    assert version in said
    assert user == "10001:10001"
