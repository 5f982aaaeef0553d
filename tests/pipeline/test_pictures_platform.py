"""A benchmark of pictures on the real platform: seed to a better best, and a report that shows them."""

import re
import time
from typing import Any

import pytest

from skillopt_airflow.core.run_history import History
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore

pytestmark = pytest.mark.platform

BENCHMARK = "docvqa"


def test_scanned_pages_train_through_the_dag(platform: Any) -> None:
    name = f"pictures-{time.time_ns()}"
    short = {"train.num_epochs": 1, "train.steps_per_epoch": 3, "train.batch_size": 12, "storage.prefix": f"{name}/"}
    for dag in ("", "_epoch", "_epoch_end"):
        platform.api.wait_for_dag(f"train_{BENCHMARK}{dag}")
    platform.api.trigger(f"train_{BENCHMARK}", {"overrides": short}, name)
    assert platform.api.wait(f"train_{BENCHMARK}", name, seconds=900) == "success"
    store, keys = ObjectStore(platform.s3, "skillopt"), RunKeys(f"{name}/", BENCHMARK, run_name(name))
    history = store.get_model(keys.history, History)
    assert history.best_val_score >= history.seed_val_score + 0.1
    assert history.test["best"].score > history.test["seed"].score
    pages = store.list_keys(f"{name}/files/")
    assert len(pages) == 75
    report = store.get_text(keys.report)
    assert 1 <= len(re.findall('<img alt="" src="data:image/jpeg;base64,', report)) <= 4
