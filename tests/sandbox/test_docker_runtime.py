"""What a container on the worker's engine is told of itself, by an engine that makes none."""

import threading
import time
from typing import Any

from skillopt_airflow.core.types import Item, ItemImage
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.sandbox import docker_runtime
from skillopt_airflow.sandbox.docker_container import EXPIRES_LABEL
from skillopt_airflow.sandbox.docker_limits import task_seconds
from skillopt_airflow.sandbox.docker_runtime import DockerRuntime
from skillopt_airflow.sandbox.staging import TaskFolder


def test_the_time_of_a_container_begins_once_its_image_is_there(workload, tmp_path, monkeypatch):
    moment = time.time()

    class Slow:
        """Images that take longer to build than a container may live."""

        def __init__(self, *_: Any) -> None:
            pass

        def of(self, item: Item) -> str:
            nonlocal moment
            moment += 10_000
            return f"image-of-{item.id}"

    monkeypatch.setattr(docker_runtime, "ItemImages", Slow)
    monkeypatch.setattr(time, "time", lambda: moment)
    fake = workload(None, count=3, timeout=600)
    fake.one_item_each = True
    runtime = DockerRuntime(None, fake, TaskFolder(tmp_path), 1, threading.Event())
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
    runtime = DockerRuntime(None, fake, TaskFolder(tmp_path), 1, threading.Event())
    assert int(runtime.labels[EXPIRES_LABEL]) >= time.time() + 2 * (1800 + 100 + 50 + 240)
