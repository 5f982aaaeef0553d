"""docker/compose.yaml: an installation of its own on one engine, with a database and a broker of Debian's packages.

Elsewhere the images of PostgreSQL and Valkey come from a registry; here both programs are in one image of packages.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import docker
import httpx
import pytest
import yaml
from botocore.config import Config

from local import image
from local.airflow_api import AirflowApi
from local.engine import install_packages
from local.objectstore import own_variables
from skillopt_airflow.core.config.resource_groups import StorageGroup

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

COMPOSE, PROGRAM = image.ROOT / "docker" / "compose.yaml", "docker-compose"
STORES, SUITE = "skillopt-test-stores:latest", "bookworm"
PROJECT, NETWORK = "skillopt-compose", "172.30.99"
HOST = f"{NETWORK}.1"
"""This machine, as the containers see it."""
S3_PORT, MODEL_PORT, AIRFLOW_PORT = 18321, 18322, 18323
DATABASE = """
data=/var/lib/postgresql/data; bin=/usr/lib/postgresql/15/bin
if [ ! -e $data/PG_VERSION ]; then
  chown postgres $data && echo "$POSTGRES_PASSWORD" > /tmp/password && chmod 644 /tmp/password
  su postgres -c "$bin/initdb --pgdata $data --username $POSTGRES_USER --pwfile /tmp/password --auth-host scram-sha-256"
  echo "host all all all scram-sha-256" >> $data/pg_hba.conf
  su postgres -c "$bin/postgres --single -D $data postgres" <<< "CREATE DATABASE $POSTGRES_DB"
fi
install -d -o postgres /var/run/postgresql
exec su postgres -c "$bin/postgres -D $data -c listen_addresses='*'"
"""
"""What the entrypoint of PostgreSQL's own image does."""
SECONDS = 900.0


@pytest.fixture(scope="module")
def program() -> str:
    if shutil.which(PROGRAM) is None:
        install_packages(PROGRAM)
    return PROGRAM


def make_stores(client: docker.DockerClient, folder: Path) -> None:
    if client.images.list(name=STORES):
        return
    archive = folder / "stores.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=postgresql,redis-server", SUITE, str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    repository, _, tag = STORES.partition(":")
    client.api.import_image(src=str(archive), repository=repository, tag=tag)
    archive.unlink()


def overriding() -> dict[str, Any]:
    """What differs where no registry answers."""
    return {
        "services": {
            "database": {
                "command": ["bash", "-c", DATABASE.replace("$", "$$")],
                "environment": {"PATH": "/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            },
            "broker": {"command": ["sh", "-c", 'exec redis-server --bind 0.0.0.0 --requirepass "$$BROKER_PASSWORD"']},
        },
        "networks": {"default": {"ipam": {"config": [{"subnet": f"{NETWORK}.0/24"}]}}},
    }


def write_secrets(folder: Path) -> None:
    password, broker = secrets.token_hex(16), secrets.token_hex(16)
    (folder / "stores.env").write_text(f"POSTGRES_PASSWORD={password}\nBROKER_PASSWORD={broker}\n")
    address = f"airflow:{password}@database/airflow"
    endpoint = quote(f"http://{HOST}:{S3_PORT}", safe="")
    model = {"conn_type": "pydanticai", "host": f"http://{HOST}:{MODEL_PORT}/v1", "password": "stand-in-key"}
    variables = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{address}",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{address}",
        "AIRFLOW__CELERY__BROKER_URL": f"redis://:{broker}@broker/0",
        "AIRFLOW__CORE__FERNET_KEY": "",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW_CONN_SKILLOPT_S3": f"aws://unchecked:unchecked@/?region_name=us-east-1&endpoint_url={endpoint}",
    }
    for role in ("target", "optimizer"):
        connection = model | {"extra": {"model": f"openai-chat:stand-in-{role}"}}
        variables[f"AIRFLOW_CONN_SKILLOPT_{role.upper()}"] = json.dumps(connection)
    (folder / "airflow.env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))


@contextmanager
def on_the_host(folder: Path) -> Iterator[Any]:
    """The object store and the stand-in, at the address of this machine that the containers reach."""
    own = own_variables(HOST, S3_PORT, folder)
    commands = (["-m", "ministack"], ["-m", "local.standin", "--host", HOST, "--port", str(MODEL_PORT)])
    with ExitStack() as stack:
        for command in commands:
            server = subprocess.Popen([sys.executable, *command], env=os.environ | own, cwd=image.ROOT)
            stack.callback(server.wait)
            stack.callback(server.terminate)
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{HOST}:{S3_PORT}",
            region_name="us-east-1",
            aws_access_key_id="unchecked",
            aws_secret_access_key="unchecked",
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                httpx.get(f"http://{HOST}:{S3_PORT}/_ministack/health", trust_env=False)
                httpx.get(f"http://{HOST}:{MODEL_PORT}/v1/models", trust_env=False)
                break
            time.sleep(0.2)
        storage = StorageGroup()
        for bucket in (storage.bucket, storage.artifact_bucket, "skillopt-logs"):
            client.create_bucket(Bucket=bucket)
        with closing(client):
            yield client


class Installation:
    """What `docker-compose up` has started."""

    def __init__(self, folder: Path, docker_host: str, program: str) -> None:
        self._folder, self._program = folder, program
        socket = docker_host.removeprefix("unix://")
        self._variables = os.environ | {
            "DOCKER_HOST": docker_host,
            "POSTGRES_IMAGE": STORES,
            "VALKEY_IMAGE": STORES,
            "AIRFLOW_ADDRESS": f"127.0.0.1:{AIRFLOW_PORT}",
            "DOCKER_SOCKET": socket,
            "DOCKER_GROUP": str(Path(socket).stat().st_gid),
        }

    def __call__(self, *arguments: str) -> str:
        files = ("-f", str(self._folder / "compose.yaml"), "-f", str(self._folder / "override.yaml"))
        command = [self._program, "-p", PROJECT, *files, *arguments]
        done = subprocess.run(command, env=self._variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def api(self) -> AirflowApi:
        [container] = self("ps", "-q", "api-server").split()
        client = docker.DockerClient(base_url=self._variables["DOCKER_HOST"])
        with closing(client):
            found = client.containers.get(container).attrs["NetworkSettings"]["Networks"][f"{PROJECT}_default"]
        address = f"http://{found['IPAddress']}:8080"
        deadline = time.monotonic() + 300
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{address}/api/v2/monitor/health", trust_env=False, timeout=10).is_success:
                    break
            assert time.monotonic() < deadline, self("logs", "--tail", "50")
            time.sleep(2)
        users = json.loads(self("exec", "-T", "api-server", "cat", "simple_auth_manager_passwords.json.generated"))
        return AirflowApi(address, "admin", users["admin"])


@pytest.fixture(scope="module")
def installation(
    docker_host: str, program: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Any]]:
    folder = tmp_path_factory.mktemp("compose")
    image.ensure(image.ROOT / ".local", docker_host, print, ["airflow"])
    with closing(docker.DockerClient(base_url=docker_host, timeout=600)) as client:
        make_stores(client, folder)
    for name in ("compose.yaml", "deployment.yaml"):
        shutil.copyfile(COMPOSE.with_name(name), folder / name)
    (folder / "override.yaml").write_text(yaml.safe_dump({"version": "3.9", **overriding()}))
    write_secrets(folder)
    compose = Installation(folder, docker_host, program)
    # A test that was interrupted has left a database, which knows another password.
    compose("down", "--volumes", "--timeout", "20")
    try:
        compose("up", "-d", "database", "broker")
        with on_the_host(folder) as s3:
            compose("up", "-d")
            yield compose, s3
    finally:
        compose("down", "--volumes", "--timeout", "20")


def test_a_skill_is_scored_over_its_workers(installation: tuple[Installation, Any]) -> None:
    compose, s3 = installation
    with closing(compose.api()) as api:
        api.wait_for_dag("evaluate_searchqa", SECONDS)
        conf = {"skills": ["seed"], "overrides": {"data.limit": 4}}
        run_id = api.trigger("evaluate_searchqa", conf)
        state = api.wait("evaluate_searchqa", run_id, seconds=SECONDS)
        rows = api.task_instances("evaluate_searchqa", run_id)
        failed = [(row["task_id"], row["try_number"], row["map_index"]) for row in rows if row["state"] == "failed"]
        said = "\n".join(line for task in failed for line in api.log("evaluate_searchqa", run_id, *task)[-20:])
    assert state == "success", said
    assert {row["hostname"] for row in rows if row["hostname"]} <= {"worker-1", "worker-2", "worker-3"}
    stored = [found["Key"] for found in s3.list_objects_v2(Bucket="skillopt")["Contents"]]
    assert any(key.endswith("matrix.json") for key in stored)
    assert s3.list_objects_v2(Bucket="skillopt-logs")["KeyCount"] > 0
