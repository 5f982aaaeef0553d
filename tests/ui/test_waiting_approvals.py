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
    # About a run that is published.
    tables.waits("train_a", "later", run="finished")
    assert [one.run for one in waiting_approvals(tables.session, ["train_a"])] == ["finished"]


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
