import pytest
from fastapi.testclient import TestClient
from jinja2 import DictLoader

from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.ui import pages, skills_list
from skillopt_airflow.ui.training_runs import MOST_TRAININGS, training_dag_run, trainings_under_way
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain
from tests.ui.shelf import Shelf, Tables
from tests.ui.users import log_in

DAG = train_dag_id("searchqa")


@pytest.mark.parametrize("asked", ["one", "one__epoch_01", "one__epoch_02_part_3"])
def test_a_part_of_a_training_leads_to_its_dag_run(tables: Tables, asked: str) -> None:
    tables.has_run(DAG, "one", state="running")
    tables.has_run(epoch_dag_id("searchqa"), "one__epoch_01", state="failed")
    found = training_dag_run(tables.session, "searchqa", asked)
    assert (found.dag_id, found.run_id, found.state, found.goes_on) == (DAG, "one", "running", True)
    assert found.address == f"dags/{DAG}/runs/one"


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


def test_a_mapped_task_has_the_address_that_airflow_gives_it(tables: Tables) -> None:
    tables.has_run(DAG, "one", state="failed")
    for index in range(2):
        tables.has_task(DAG, "one", "publication.measure", "failed", index)
    tables.has_task(DAG, "one", "publication.publish", "failed")
    found = training_dag_run(tables.session, "searchqa", "one")
    assert [found.task_address(task) for task in found.failed] == [
        f"dags/{DAG}/runs/one/tasks/publication.measure/mapped",
        f"dags/{DAG}/runs/one/tasks/publication.publish",
    ]


def test_a_dag_run_that_is_gone_has_no_state(tables: Tables) -> None:
    found = training_dag_run(tables.session, "searchqa", "gone__epoch_01")
    assert (found.state, found.goes_on) == ("", False)


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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_list_of_them_shows_names_as_they_are(tables: Tables, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def shown(run_id: str) -> str:
        tables.session.rollback()
        tables.has_run(DAG, run_id, state="running")
        return rendered(monkeypatch, trainings=trainings_under_way(tables.session, ["searchqa"]))

    text = HOSTILE[name].replace("\ud800", "")[:2000]
    assert "progress" in shown("plain")
    assert_harmless(shown(text), shown(plain(text)))


def test_the_skills_page_lists_those_that_the_user_may_see(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(monkeypatch)
    log_in(monkeypatch, dags=[DAG])
    tables.has_run(DAG, "mine", state="running")
    tables.has_run(train_dag_id("docvqa"), "theirs", state="running")
    with TestClient(skills_list.app) as browser:
        text = browser.get("/skills").text
    assert f'href="dag_runs/{DAG}/mine/progress"' in text
    assert "theirs" not in text


def rendered(monkeypatch: pytest.MonkeyPatch, **values: object) -> str:
    environment = pages._environment().overlay()
    files = pages._environment().loader
    assert files is not None
    partial = files.get_source(environment, "trainings_under_way.html")[0]
    page = "{% from 'partial.html' import listed with context %}<html><body>{{ listed(trainings) }}</body></html>"
    environment.loader = DictLoader({"partial.html": partial, "page.html": page})
    return environment.get_template("page.html").render(up="../", **values)
