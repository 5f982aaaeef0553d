"""Airflow's own image: built here on the base that the project makes, and run as an installation of its own."""

import json
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from local import image

# Fetching, compiling and copying all of Airflow's packages takes minutes.
pytestmark = pytest.mark.cluster

NAME = image.RECIPES["airflow"].image
FOUND = """
airflow db migrate > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
airflow dags reserialize > /tmp/said 2>&1 || { cat /tmp/said; exit 1; }
airflow dags list --columns dag_id --output json
airflow dags list-import-errors --output json
airflow plugins --output json
"""


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[docker.DockerClient]:
    image.ensure(image.ROOT / ".local", docker_host, print, ["airflow"])
    client = docker.DockerClient(base_url=docker_host, timeout=600)
    yield client
    client.close()


def said(client: docker.DockerClient, *command: str) -> str:
    """The output of a command in a container that reaches nothing."""
    found: bytes = client.containers.run(NAME, [*command], network_mode="none", remove=True)
    return found.decode()


def test_it_has_the_projects_dags_and_pages_and_no_root(client: docker.DockerClient) -> None:
    lines = [line for line in said(client, "bash", "-c", FOUND).splitlines() if line.startswith("[")]
    dags, errors, plugins = lines
    ids: set[Any] = {row["dag_id"] for row in json.loads(dags)}
    assert {"train_searchqa", "train_searchqa_epoch", "regate_searchqa", "publish_docvqa", "skillopt_cleanup"} <= ids
    assert errors == "[]"
    assert [row["name"] for row in json.loads(plugins)].count("skillopt") == 1
    assert client.images.get(NAME).attrs["Config"]["User"] == "50000:0"


def test_it_has_the_versions_of_the_lock_and_drivers_for_what_production_uses(client: docker.DockerClient) -> None:
    drivers = "asyncpg, celery, docker, kubernetes, psycopg, psycopg2, redis"
    code = f"import {drivers}, os; print(os.getuid(), os.environ['HOME'])"
    assert said(client, "python", "-c", code).split() == ["50000", "/opt/airflow"]
    assert said(client, "airflow", "version").strip() in (image.ROOT / "requirements.txt").read_text()


def test_no_variable_of_it_is_a_secret(client: docker.DockerClient) -> None:
    variables = {line.partition("=")[0] for line in client.images.get(NAME).attrs["Config"]["Env"]}
    assert variables <= {
        *("PATH", "HOME", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "AIRFLOW_HOME"),
        "AIRFLOW__CORE__LOAD_EXAMPLES",
        # Of the official image of Python.
        *("LANG", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"),
    }
