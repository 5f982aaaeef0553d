"""A benchmark of pictures on the real platform, evaluated as batch jobs: seed to a better best, and a report."""

import re
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from platform_control import PROJECT
from shared_resource import alone

from local.served import served
from skillopt_airflow.core.run.history import History
from skillopt_airflow.store.keys import MatrixKeys, RunKeys, run_name, scoring_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from tests.batch_server import BatchServer
from tests.pipeline.trained_run import create_connection

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

BENCHMARK = "docvqa"
DAG_FILE = PROJECT / "dags" / "skillopt.py"
BATCH_JOBS = '\nmodel: {batch: true, target: "openai:stand-in-target"}\n'


@pytest.fixture
def batched(platform: Any) -> Iterator[str]:
    """The name of the same benchmark with evaluations as batch jobs, which a run cannot choose."""
    # Airflow keeps what it knew of a DAG whose file went away, so no other session has this name.
    name = f"{BENCHMARK}{time.time_ns()}"
    made = [PROJECT / folder / name for folder in ("skills", "benchmarks")]
    # Whoever looks at the benchmarks meanwhile sees a whole one or none: of a leading _ nobody takes notice.
    unseen = [folder.with_name(f"_{name}") for folder in made]
    for folder in unseen:
        shutil.copytree(folder.with_name(BENCHMARK), folder)
    with (unseen[1] / "benchmark.yaml").open("a", encoding="utf-8") as settings:
        settings.write(BATCH_JOBS)
    # Whoever looks after images waits meanwhile: with another benchmark they would be made anew.
    with alone(PROJECT / ".local"):
        for folder, shown in zip(unseen, made, strict=True):
            folder.rename(shown)
        DAG_FILE.touch()
        yield name
        for folder, shown in reversed([*zip(unseen, made, strict=True)]):
            shown.rename(folder)
            shutil.rmtree(folder)


def test_scanned_pages_train_through_the_dag(platform: Any, batched: str) -> None:
    name, store = f"pictures-{time.time_ns()}", ObjectStore(platform.s3, "skillopt")
    few = {"evaluation.val_limit": 20, "evaluation.test_limit": 10, "storage.prefix": f"{name}/"}
    contained = {"skills": ["seed"], "splits": ["val"], "overrides": few}
    platform.api.wait_for_dag(f"evaluate_{BENCHMARK}")
    platform.api.trigger(f"evaluate_{BENCHMARK}", contained, name)
    # Ten items are of four documents, too few groups for a test.
    short = {"train.num_epochs": 1, "train.steps_per_epoch": 2, "train.batch_size": 12, **few}
    short |= {"publishing.gate_policy": "strict"}
    for dag in ("", "_epoch"):
        platform.api.wait_for_dag(f"train_{batched}{dag}")
    with served(BatchServer("127.0.0.1", 0)) as provider:
        create_connection(platform, "skillopt_batches", provider.base_url, "openai:stand-in-target", "a key")
        overrides = short | {"model.target_conn_id": "skillopt_batches"}
        platform.api.trigger(f"train_{batched}", {"overrides": overrides}, name)
        assert platform.api.wait(f"train_{batched}", name, seconds=900) == "success"
    keys = RunKeys(f"{name}/", batched, run_name(name))
    history = store.get_model(keys.history, History)
    assert history.best.score >= history.seed.score + 0.1
    assert history.test["best"].score > history.test["seed"].score
    pages = store.list_keys(f"{name}/files/")
    assert len(pages) == 75
    report = store.get_text(keys.report)
    assert 1 <= len(re.findall('<img alt="" src="data:image/jpeg;base64,', report)) <= 4

    operators = [row["operator"] for row in platform.api.task_instances(f"train_{batched}", name)]
    assert operators.count("BatchRollouts") >= 3
    # Containers find the same in the pages.
    assert platform.api.wait(f"evaluate_{BENCHMARK}", name, seconds=300) == "success"
    [cell] = MatrixTable(store, MatrixKeys(f"{name}/", BENCHMARK)).read(scoring_name(name)).cells
    assert (cell.skills[0].score, cell.skills[0].items) == (history.seed.score, 20)
