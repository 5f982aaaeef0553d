from typing import Any

import pytest

from skillopt_airflow.store.keys import run_name
from skillopt_airflow.ui.waiting_approvals import WaitingApproval, waiting_approvals
from tests.ui.shelf import SINCE, Tables


def test_what_waits_in_the_asked_dags(tables: Tables) -> None:
    tables.waits("publish_a", "run+1", "publication.approve")
    tables.waits("publish_a", "answered", answered=True)
    tables.waits("publish_b", "elsewhere")
    tables.has_run("publish_a", "without-a-question")
    [one] = waiting_approvals(tables.session, ["publish_a", "train_a"])
    named = ("publish_a", "run+1", "publication.approve", "Change publish_a?")
    assert one == WaitingApproval(*named, SINCE, "", run_name("run+1"))
    assert one.address == "dags/publish_a/runs/run%2B1/tasks/publication.approve/required_actions"
    assert waiting_approvals(tables.session, []) == []


@pytest.mark.parametrize(
    ("conf", "target"),
    [
        ({"target": "a:b"}, "a:b"),
        ({"model.target": "a:b", "target": None}, "a:b"),
        ({"overrides": {"model.target": "a:b"}}, "a:b"),
        ({"overrides": None, "target": 7}, ""),
        ({}, ""),
    ],
)
def test_its_target_is_what_the_form_names(tables: Tables, conf: dict[str, Any], target: str) -> None:
    tables.waits("publish_a", "run", **conf)
    assert [one.target for one in waiting_approvals(tables.session, ["publish_a"])] == [target]


def test_it_is_about_the_run_that_is_published_or_its_own(tables: Tables) -> None:
    tables.waits("publish_a", "later", run="finished")
    tables.waits("train_a", "under:way")
    found = waiting_approvals(tables.session, ["publish_a", "train_a"])
    assert {one.dag_id: one.run for one in found} == {"publish_a": "finished", "train_a": run_name("under:way")}
