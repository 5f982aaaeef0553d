import json

import pytest

from skillopt_airflow.pipeline.evaluate_dag import form as evaluate_form
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.publishing import publish_form, rollback_dag
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.ui.skill_page import forms_of

CONFIG = benchmark_config("searchqa")
KNOWN = {
    "evaluate_searchqa": set(evaluate_form(CONFIG)),
    "publish_searchqa": set(publish_form(CONFIG)),
    "regate_searchqa": set(regate_dag("searchqa", CONFIG).params),
    "rollback_searchqa": set(rollback_dag("searchqa", CONFIG).params),
}


@pytest.mark.parametrize("overrides", [{}, {"model.target_conn_id": "theirs"}])
@pytest.mark.parametrize("back_to", ["", "v0001-0123456789ab"])
def test_every_form_has_fields_that_its_dag_knows(back_to: str, overrides: dict[str, str]) -> None:
    forms = forms_of("searchqa", "a:b", "v0002-0123456789ab", "run", back_to, overrides)
    assert all(set(one.conf) <= KNOWN[one.dag_id] for one in forms)
    assert ("rollback_searchqa" in {one.dag_id for one in forms}) == bool(back_to)
    assert len({one.slug for one in forms}) == len(forms)
    assert all(json.loads(one.json) == one.conf for one in forms)


def test_without_a_champion_there_is_nothing_to_do_with_it() -> None:
    assert forms_of("searchqa", "a:b", "", "", "", {}) == []
