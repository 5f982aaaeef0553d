import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from pydantic import SecretStr

from local import image
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.store.objects import ObjectStore
from tests.gateway.scripted_provider import ScriptedProvider
from tests.rollout.single_item import PLAIN
from tests.sandbox.fake_workload import KEY, SECRET_ANSWER, FakeWorkload
from tests.sandbox.remote_engine import signing_store
from tests.store.conftest import s3_endpoint  # noqa: F401


@pytest.fixture
def client(docker_host: str) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=docker_host)
    yield client
    client.close()


@pytest.fixture
def store(s3_endpoint: str, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:  # noqa: F811
    with signing_store(s3_endpoint, request.node.nodeid) as store:
        yield store


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Callable[..., FakeWorkload]:
    def make(
        provider: ScriptedProvider | None,
        count: int = 1,
        concurrency: int = 1,
        image: str = HARNESSES["chat"].image,
        **limits: Any,
    ) -> FakeWorkload:
        public = {"question": "Which tower?", "context": "[DOC] Eiffel"}
        reference = {"answers": [SECRET_ANSWER]}
        return FakeWorkload(
            items=[Item(id=f"i-{n}", public=public, reference=reference) for n in range(count)],
            upstream=Upstream(
                dialect="openai-chat",
                base_url=provider.base_url if provider else "http://127.0.0.1:9/v1",
                model="stand-in-target",
                api_key=SecretStr(KEY),
            ),
            settings=RolloutSettings(**PLAIN | {"concurrency": concurrency, "call_timeout": 60, "max_attempts": 2}),
            limits=SandboxGroup(**limits),
            labels={"run": request.node.nodeid, "step": "1", "chunk": "0"},
            image=image,
        )

    return make


@pytest.fixture
def program(client: docker.DockerClient, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """An image like the sandbox's that runs other code."""
    made: list[str] = []

    def make(code: str) -> str:
        (tmp_path / "Dockerfile").write_text(
            f"FROM {image.IMAGE}\nCOPY program.py /program.py\nENTRYPOINT {json.dumps(['python3', '/program.py'])}\n"
        )
        (tmp_path / "program.py").write_text(code)
        tag = f"skillopt-test:{os.getpid()}-{tmp_path.name[:60]}".lower()
        client.images.build(path=str(tmp_path), tag=tag, network_mode="none", rm=True)
        made.append(tag)
        return tag

    yield make
    for tag in made:
        client.images.remove(tag, force=True)
