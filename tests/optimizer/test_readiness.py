import pytest

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.optimizer.readiness import check_answers
from tests.optimizer.scripted_optimizer import ScriptedOptimizer, unusable


def test_any_answer_that_fits_its_schema_will_do_and_no_other() -> None:
    optimizer = ScriptedOptimizer({"ready": False})
    check_answers(optimizer)
    assert [stage for stage, _ in optimizer.calls] == ["preflight"]
    with pytest.raises(ModelOutputError):
        check_answers(ScriptedOptimizer(unusable()))
