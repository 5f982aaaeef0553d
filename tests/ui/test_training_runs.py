import pytest
from fastapi.testclient import TestClient

from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.ui.training_runs import MOST_TRAININGS, training_dag_run, trainings_under_way
from tests.ui.shelf import Shelf, Tables
from tests.ui.users import log_in

DAG = train_dag_id("searchqa")


@pytest.mark.parametrize("asked", ["one", "one__epoch_02_part_3"])
def test_a_part_of_a_training_leads_to_its_dag_run(tables: Tables, asked: str) -> None:
    tables.has_run(DAG, "one", state="running")
    tables.has_run(epoch_dag_id("searchqa"), "one__epoch_01", state="failed")
    found = training_dag_run(tables.session, "searchqa", asked)
    assert (found.dag_id, found.run_id, found.state, found.goes_on) == (DAG, "one", "running", True)
    assert found.address == f"dags/{DAG}/runs/one"
    gone = training_dag_run(tables.session, "searchqa", "gone__epoch_01")
    assert (gone.state, gone.goes_on) == ("", False)


def test_the_tasks_that_keep_it_from_going_on_are_named(tables: Tables) -> None:
    tables.has_run(DAG, "one", state="running")
    tables.has_run(DAG, "two", state="running")
    for index in range(3):
        tables.has_task(DAG, "one", "evaluate_seed", "failed", index)
    tables.has_task(DAG, "one", "publication.approve", "awaiting_input")
    tables.has_task(DAG, "one", "prepare", "success")
    tables.has_task(DAG, "two", "start", "failed")
    found = training_dag_run(tables.session, "searchqa", "one")
    assert (found.failed, found.waiting) == (("evaluate_seed",), ("publication.approve",))
    # As Airflow has a page for a mapped task and another one for its instances.
    runs = f"dags/{DAG}/runs/one/tasks"
    addresses = [found.task_address(task) for task in (*found.failed, *found.waiting)]
    assert addresses == [f"{runs}/evaluate_seed/mapped", f"{runs}/publication.approve"]


def test_the_latest_trainings_under_way_are_listed_and_all_counted(tables: Tables) -> None:
    for number in range(MOST_TRAININGS + 5):
        tables.has_run(DAG, f"run {number}", state="queued" if number % 2 else "running")
    tables.has_run(DAG, "over", state="success")
    tables.has_run(epoch_dag_id("searchqa"), "run 1__epoch_01", state="running")
    tables.has_run(train_dag_id("docvqa"), "other", state="running")
    found = trainings_under_way(tables.session, ["searchqa"])
    assert (len(found.listed), found.total) == (MOST_TRAININGS, MOST_TRAININGS + 5)
    assert {one.benchmark for one in found.listed} == {"searchqa"}
    assert trainings_under_way(tables.session, ["docvqa", "searchqa"]).total == MOST_TRAININGS + 6
    assert trainings_under_way(tables.session, []).total == 0


def test_the_skills_page_lists_those_that_the_user_may_see(
    viewer: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, dags=[DAG])
    tables.has_run(DAG, "mine", state="running")
    tables.has_run(train_dag_id("docvqa"), "theirs", state="running")
    text = viewer.get("/skills").text
    assert f'href="dag_runs/{DAG}/mine/report"' in text
    assert "theirs" not in text
