import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.scoring.json_answer import JsonAnswer, json_values

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.dictionaries(st.text(max_size=8), PLAIN | st.lists(PLAIN, max_size=3), max_size=3)


@pytest.mark.parametrize(
    ("path", "response", "answer"),
    [
        ("", 'Here: {"a": 1}, or rather {"a": {"b": [2]}}.', '{"a": {"b": [2]}}'),
        ("", "42", "42"),
        ("", '"Nile"', "Nile"),
        ("", '```json\n{"a": 1}\n```\nas in [1].', '{"a": 1}'),
        ("", "```\nno JSON\n```\n[1, 2]", "[1, 2]"),
        ("", '{"a": 1', ""),
        ("", "{x} and [y]", ""),
        ("a", '{"a": "Nile"} and {"b": 1}', "Nile"),
        ("$.a", '{"a": "Nile"}', "Nile"),
        ("a.b[1].c", '{"a": {"b": [0, {"c": null}]}}', "null"),
        ("$[0][1]", '[[1, "two"]]', "two"),
        ("a b", '{"a b": true}', "true"),
        ("a", "[1]", ""),
        ("[3]", "[1]", ""),
        ("a", '{"a": "\\ud800"}', "\ufffd"),
        ("", '{"a": NaN}', '{"a": null}'),
        ("", "\\frac{1}{2} " * 3000 + '[{"a": 1}] and [ ] {{x}}', '[{"a": 1}]'),
        # A later empty value, or an echo of the instruction, replaces no answer.
        ("", '{"a": 1} and nothing in {}.', '{"a": 1}'),
        ("", '```json\n{"a": 1}\n```\n```json\n{}\n```', '{"a": 1}'),
        ("", 'So {"a": 1}, where an empty one is\n```json\n{}\n```', '{"a": 1}'),
        ("", "nothing: {}", "{}"),
        ("a", '{"a": "Nile"} in the form {"a": "..."}', "Nile"),
        ("a", '{"a": "Nile"} and {"a": "<your answer>"}', "Nile"),
        ("a", '{"a": "..."}', "..."),
        ("a", '{"a": "Nile"}, or {"a": ""}', ""),
        ("a", '{"a": 1}, or {"a": null}', "null"),
        ("a", '{"a": [1]}, or {"a": []}', "[]"),
        ("a", 'So {"a": 1}, not\n```json\n{"b": 1}\n```', "1"),
        ("[0].a", "\\frac{1}{2} " * 3000 + '[{"a": 1}] and [ ] {{x}}', "1"),
    ],
)
def test_what_the_path_leads_to_in_the_last_value_that_has_it(path: str, response: str, answer: str) -> None:
    assert JsonAnswer(path=path).extract(response) == answer


@pytest.mark.parametrize("path", ["a[b]", "a..b", "a[", "a.", "$$a["])
def test_a_path_of_another_form_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="path"):
        JsonAnswer(path=path)


@given(VALUES, st.sampled_from(["{}", "So:\n```json\n{}\n```\nDone.", "First {{x}}, then {} [see above]"]))
def test_a_value_is_found_wherever_it_stands(value: dict[str, object], around: str) -> None:
    assert json_values(around.replace("{{", "{").replace("}}", "}").replace("{}", json.dumps(value)))[-1] == value


@pytest.mark.parametrize("response", ["[" * 20_000, '{"a":' * 5_000, f"[{'9' * 5000}]", ("[" * 900 + "x") * 70])
def test_what_is_nested_too_deeply_or_too_long_is_no_value(response: str) -> None:
    assert json_values(response) == []


@given(st.text(max_size=100) | st.text('[]{}",:1`\n', max_size=100))
def test_any_response_gives_an_answer(response: str) -> None:
    JsonAnswer().extract(response).encode()
