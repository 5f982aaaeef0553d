"""Skills under two targets on the real platform, one of which the server does not have; and a gate of a skill."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from local.environment import airflow_url
from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.store.tables.parquet import from_parquet
from tests.gateway.foreign_server import ForeignServer, serving
from tests.pipeline.trained_run import create_connection, token

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

DAG = "evaluate_searchqa"
CONNECTION = "skillopt_evaluate"
HERE, GONE = "openai-chat:some-model", "openai-chat:gone-model"
SKILL = "# Places\n\nAnswer with the name of a place.\n"
ITEMS = 12


@dataclass(frozen=True)
class MatrixRun:
    """A run of the DAG by its id."""

    platform: Any
    run_id: str
    prefix: str

    @classmethod
    def trigger(cls, platform: Any, name: str, prefix: str, connection: str = CONNECTION, **asked: Any) -> "MatrixRun":
        platform.api.wait_for_dag(DAG)
        models = {"model.target_conn_id": connection, "model.optimizer_conn_id": connection}
        overrides = {**models, "storage.prefix": prefix, "data.limit": ITEMS}
        run_id = f"{name}-{time.time_ns()}"
        platform.api.trigger(DAG, {"skills": ["seed", SKILL], "overrides": overrides, **asked}, run_id)
        return cls(platform, run_id, prefix)

    def matrix(self) -> SkillMatrix:
        """What it stored, when it has ended well."""
        assert self.platform.api.wait(DAG, self.run_id, seconds=300) == "success", self.states()
        return MatrixTable(self.store, self.keys).read(self.name)

    @property
    def name(self) -> str:
        return scoring_name(self.run_id)

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.platform.s3, "skillopt")

    @property
    def keys(self) -> MatrixKeys:
        return MatrixKeys(self.prefix, "searchqa")

    def states(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.platform.api.task_instances(DAG, self.run_id):
            found.setdefault(row["task_id"], []).append(row["state"])
        return {task: sorted(states) for task, states in found.items()}


@pytest.fixture(scope="module")
def server(platform: Any) -> Iterator[ForeignServer]:
    with serving(ForeignServer("sk-right")) as server:
        create_connection(platform, CONNECTION, server.base_url, HERE, password=server.key)
        yield server


@pytest.fixture(scope="module")
def run(platform: Any, server: ForeignServer) -> MatrixRun:
    return MatrixRun.trigger(platform, "matrix", f"matrix-{time.time_ns()}/", targets=[HERE, GONE])


def test_a_target_that_the_server_refuses_says_so_and_the_other_has_scores(
    run: MatrixRun, server: ForeignServer
) -> None:
    matrix = run.matrix()
    here, gone = matrix.cells
    assert (here.target, gone.target) == (HERE, GONE)
    # It answers Paris whatever it is asked, which is never right: a score of 0 is one.
    assert {(one.score, one.items, one.coverage) for one in here.skills} == {(0.0, ITEMS, 1.0)}
    assert here.skills[1].against_first is not None
    assert here.skills[1].against_first.ties == ITEMS
    assert here.skills[0].cost.prompt_tokens == ITEMS * 310
    for lost in gone.skills:
        assert (lost.score, lost.items) == (None, 0)
        # After eight that fail alike no other is begun, but for those that were under way by then.
        tried = ITEMS - lost.missing
        assert tried >= 8
        assert str(lost.reason).startswith(f"{tried} of 12 items: model_error: status_code: 404")
    assert server.calls >= 2 * ITEMS + 2 * 8
    assert run.states() == {
        "prepare": ["success"],
        "rollout": ["failed", "failed", "success", "success"],
        "conclude": ["success"],
    }


def test_it_is_a_table_in_the_store_and_a_page_in_the_tab_of_its_run(run: MatrixRun) -> None:
    matrix = run.matrix()
    table = from_parquet(run.store.get_bytes(run.keys.table(run.name)))
    assert table["score"].to_pylist() == [0.0, 0.0, None, None]
    assert MatrixTable(run.store, run.keys).of_skill(SkillDocument(SKILL).sha256) == [matrix]
    url = f"{airflow_url(run.platform.settings)}/skillopt/dag_runs/{DAG}/{run.run_id}/report"
    page = httpx.get(url, headers={"Authorization": f"Bearer {token(run.platform)}"})
    assert page.status_code == 200
    assert page.text.count("no score</span>") == 2
    assert "status_code: 404" in page.text


def test_a_run_fails_if_a_skill_is_not_better_and_it_is_asked_to(run: MatrixRun) -> None:
    run.matrix()
    # Its rollouts are there.
    gate = {"targets": [HERE], "policy": "strict", "fail_if_not_better": True}
    failing = MatrixRun.trigger(run.platform, "gate", run.prefix, **gate)
    assert run.platform.api.wait(DAG, failing.run_id, seconds=300) == "failed"
    assert failing.states()["conclude"] == ["failed"]
    [row] = MatrixTable(failing.store, failing.keys).read(failing.name).not_better
    assert row.skill.sha256 == SkillDocument(SKILL).sha256
