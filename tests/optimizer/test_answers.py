"""Slips of models in answers that say clearly what is meant."""

import json

import pytest
from pydantic import ValidationError

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.optimizer.answers import check_answers
from skillopt_airflow.optimizer.learning_rate import Ranking
from skillopt_airflow.optimizer.reflect import Reflection, SkillAwareReflection
from tests.optimizer.scripted_optimizer import ScriptedOptimizer, unusable

EDIT = {"op": "append", "content": "Be brief."}


@pytest.mark.parametrize(
    "answer",
    [
        {"edits": [EDIT | {"anchor": None, "rationale": None}]},
        {"edits": json.dumps([EDIT])},
        {"edits": [EDIT], "failure_patterns": None, "notes": None},
        {"edits": [EDIT | {"op": " Append"}]},
    ],
)
def test_what_is_understood_is_no_reason_to_ask_again(answer: dict[str, object]) -> None:
    read = SkillAwareReflection.model_validate(answer)
    assert read == SkillAwareReflection.model_validate({"edits": [EDIT]})


def test_a_text_is_a_number_and_a_list_in_a_text_is_a_list_of_numbers() -> None:
    read = Reflection.model_validate({"failure_patterns": [{"description": "It guesses.", "items": ["12"]}]})
    assert read.failure_patterns[0].items == [12]
    assert Ranking.model_validate({"order": "[1, 0]"}).order == [1, 0]
    # What the model is asked for is the same.
    assert Ranking.model_json_schema()["properties"]["order"]["type"] == "array"
    assert "anyOf" not in json.dumps(SkillAwareReflection.model_json_schema())


@pytest.mark.parametrize(
    "answer",
    [{"edits": "none"}, {"edits": "[" * 100_000}, {"edits": "{}"}, {"edits": [{"op": "burn"}]}, {"edits": 3}, "no"],
)
def test_what_is_not_understood_is_refused(answer: object) -> None:
    with pytest.raises(ValidationError):
        Reflection.model_validate(answer)


def test_any_answer_that_fits_its_schema_will_do_and_no_other() -> None:
    optimizer = ScriptedOptimizer({"ready": False})
    check_answers(optimizer)
    assert [stage for stage, _ in optimizer.calls] == ["preflight"]
    with pytest.raises(ModelOutputError):
        check_answers(ScriptedOptimizer(unusable()))
