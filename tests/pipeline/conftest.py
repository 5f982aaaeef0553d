import time
from typing import Any

import pytest

from tests.pipeline.trained_run import SHORT, TrainedRun


@pytest.fixture(scope="session")
def plain(platform: Any) -> TrainedRun:
    """A short run that nothing happened to, for comparison with those that something did."""
    name = f"plain-{time.time_ns()}"
    return TrainedRun.trigger(platform, name, SHORT | {"storage.prefix": f"{name}/"}).wait()
