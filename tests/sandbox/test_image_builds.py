"""How many images of items a task builds at a time, on an engine that is only counted."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.sandbox.item_images import ItemImages
from tests.sandbox.small_repository import CONTENTS, small_item


class Engine:
    """Has the base image alone, and refuses each container after a moment."""

    timeout = 60

    def __init__(self) -> None:
        self.most = self.refused = self._now = 0
        self._lock = threading.Lock()

    def inspect_image(self, name: str) -> dict[str, Any]:
        if not name.startswith("base"):
            raise ImageNotFound(name)
        return {"Id": name}

    def create_host_config(self, **limits: Any) -> SimpleNamespace:
        return SimpleNamespace(**limits)

    def create_container(self, image: str, **options: Any) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1
            self.refused += 1
        raise ImageMissing("no container today")


@pytest.mark.parametrize("most", [1, 2])
def test_a_task_builds_no_more_at_a_time_whoever_opened_the_images(most: int) -> None:
    engine, limits = Engine(), SandboxGroup(image_builds=most)

    def judged(number: int) -> None:
        with pytest.raises(ImageMissing, match="no container today"):
            ItemImages(engine, f"base-{number}", limits, lambda _: CONTENTS).judging(small_item())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(judged, range(6)))
    assert (engine.most, engine.refused) == (most, 6)
