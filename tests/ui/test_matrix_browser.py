"""Skills under two targets in Airflow's own UI, by a real browser: the matrix of a run of the DAG in the run's tab."""

import time
from collections.abc import Iterator

import pytest

from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from tests.gateway.foreign_server import ForeignServer, serving
from tests.pipeline.test_evaluate_platform import DAG, HERE, MatrixRun
from tests.pipeline.trained_run import create_connection
from tests.platform_control import RunningPlatform
from tests.ui.accessibility import assert_easy_to_use
from tests.ui.airflow_pages import Page

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

CONNECTION = "skillopt_evaluate_shown"
OTHER = "openai-chat:some-other-model"


@pytest.fixture(scope="module")
def run(platform: RunningPlatform) -> Iterator[MatrixRun]:
    with serving(ForeignServer("sk-right")) as server:
        create_connection(platform, CONNECTION, server.base_url, HERE, password=server.key)
        yield MatrixRun.trigger(platform, "shown", f"shown-{time.time_ns()}/", CONNECTION, targets=[HERE, OTHER])


@pytest.fixture(scope="module")
def matrix(run: MatrixRun) -> SkillMatrix:
    return run.matrix()


def test_the_tab_of_a_run_shows_its_matrix(page: Page, run: MatrixRun, matrix: SkillMatrix) -> None:
    text = page.report(DAG, run.run_id, "Evaluation", HERE)
    here, other = matrix.cells
    assert (here.skills[0].score, other.skills[0].score) == (0.0, None)
    assert "status_code: 404" in text
    assert "no score" in text


def test_nothing_is_hard_to_use(pages: Page, axe: str, run: MatrixRun, matrix: SkillMatrix) -> None:
    assert_easy_to_use(pages, axe, f"/skillopt/dag_runs/{DAG}/{run.run_id}/report")
    pages.wait_for_text(matrix.cells[0].target)
