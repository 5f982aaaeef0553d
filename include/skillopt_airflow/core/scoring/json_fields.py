"""Scoring the fields of a JSON object, one by one."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.record_fields import shown
from skillopt_airflow.core.scoring.anls import Anls
from skillopt_airflow.core.scoring.json_answer import as_text, json_values, parsed
from skillopt_airflow.core.scoring.number_match import NumberMatch, numbers
from skillopt_airflow.core.scoring.scoring_rule import Scoring
from skillopt_airflow.core.scoring.text_match import Contains, Exact, Matches, TokenF1
from skillopt_airflow.core.types import JsonObject, Score

FieldRule = Annotated[Exact | TokenF1 | Contains | NumberMatch | Anls | Matches, Field(discriminator="by")]


class JsonFields(Scoring):
    """The share of the reference's fields that the answer has right as soft score, all of them as hard score."""

    by: Literal["json"] = "json"
    fields: Mapping[str, FieldRule] = {}
    """The fields that are judged, and how each is. Empty: all fields of the reference, numbers by their value and
    everything else by equality."""

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        """Refuse what is no object, or lacks a field that is judged."""
        expected = _object(reference)
        if not expected:
            raise DataError(f"expected a JSON object with at least one field, got {shown(reference)}")
        for name, rule in self.fields.items():
            if name not in expected:
                raise DataError(f"expected an object with the field {name!r}, got {shown(reference)}")
            try:
                rule.check(expected[name], public)
            except DataError as error:
                raise DataError(f"{name}: {error}") from None

    def scored(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare the answer's last JSON object that has such a field; a missing field counts as null."""
        expected = _object(reference) or {}
        expected = {name: expected[name] for name in self.fields or expected}

        def has_field(value: JsonValue) -> bool:
            return isinstance(value, dict) and any(name in value for name in expected)

        objects = [value for value in json_values(answer, has_field) if isinstance(value, dict)]
        if not objects:
            wanted = json.dumps(expected, ensure_ascii=False)
            return Score(hard=0.0, soft=0.0, feedback=f'expected {wanted}; answered no JSON object: "{answer}"')
        found = objects[-1]
        wrong = [name for name, value in expected.items() if not self._right(name, found.get(name), value, public)]
        return Score(
            hard=float(not wrong), soft=1.0 - len(wrong) / len(expected), feedback=_feedback(expected, found, wrong)
        )

    def _right(self, name: str, answered: JsonValue, expected: JsonValue, public: JsonObject) -> bool:
        rule = self.fields.get(name)
        if rule is None and (answered == expected or not _is_number(expected)):
            return _same(answered, expected)
        if answered is None or (rule is None and not _is_one_number(answered)):
            return False
        return (rule or NumberMatch()).judge(as_text(answered), expected, public).hard == 1.0


def _object(reference: JsonValue) -> JsonObject | None:
    """Return the object that a reference is, or that its text holds."""
    if isinstance(reference, str):
        try:
            reference = parsed(reference)
        except ValueError:
            return None
    return reference if isinstance(reference, dict) else None


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one_number(value: JsonValue) -> bool:
    """Return whether a value is a number, or a text with one: of several it would not be said which is meant."""
    return _is_number(value) or (isinstance(value, str) and len(numbers(value)) == 1)


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are equal; in Python true equals 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _feedback(expected: JsonObject, found: JsonObject, wrong: list[str]) -> str:
    if not wrong:
        return f"expected {as_text(expected)}; answered it"
    wanted = as_text({name: expected[name] for name in wrong})
    came = as_text({name: found[name] for name in wrong if name in found})
    return f"expected {wanted}; answered {came}; {len(expected) - len(wrong)} of {len(expected)} fields are right"
