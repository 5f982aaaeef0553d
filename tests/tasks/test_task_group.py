"""The rules as a YAML file chooses them."""

from typing import Any

import pytest
from pydantic import ValidationError

from skillopt_airflow.core.values.types import Value
from skillopt_airflow.tasks.scoring.extraction import InTags
from skillopt_airflow.tasks.scoring.number_match import NumberMatch
from skillopt_airflow.tasks.task_group import ANSWER_RULES, SCORING_RULES, AnswerRule, ScoringRule


class Task(Value):
    answer: AnswerRule = InTags()
    score: ScoringRule = NumberMatch()


NEEDED = {"regex": {"pattern": "x"}}


def task(answer: Any = None, score: Any = None) -> Task:
    given = {"answer": answer, "score": score}
    return Task.model_validate({key: value for key, value in given.items() if value is not None})


@pytest.mark.parametrize("name", ANSWER_RULES)
def test_every_answer_rule_is_chosen_by_its_name(name: str) -> None:
    rule = task(answer={"from": name} | NEEDED.get(name, {})).answer
    assert type(rule) is ANSWER_RULES[name]
    assert rule.model_dump(by_alias=True)["from"] == name
    assert rule.extract("") == ""


@pytest.mark.parametrize("name", SCORING_RULES)
def test_every_scoring_rule_is_chosen_by_its_name(name: str) -> None:
    rule = task(score={"by": name}).score
    assert type(rule) is SCORING_RULES[name]
    assert rule.model_dump()["by"] == name


@pytest.mark.parametrize(
    ("answer", "score", "place", "said"),
    [
        ({"from": "tag"}, None, "answer", "'from' .* tags, last_line"),
        ("tags", None, "answer", "'from' .* tags"),
        ({"from": ["tags"]}, None, "answer", "'from' .* tags"),
        ({"from": "regex", "pattern": "["}, None, "answer.regex.pattern", r"'\['"),
        ({"from": "tags", "name": "x"}, None, "answer.tags.name", "Extra inputs"),
        (None, {"by": "near"}, "score", "'by' .* exact, f1"),
        (None, {"by": "number", "absolute": -1}, "score.number.absolute", "0"),
    ],
)
def test_a_mistake_is_explained(answer: Any, score: Any, place: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as raised:
        task(answer, score)
    assert [".".join(map(str, error["loc"])) for error in raised.value.errors()] == [place]
