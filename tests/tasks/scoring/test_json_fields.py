import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.scoring.json_fields import JsonAnswer, JsonFields, ListMatch, json_values
from skillopt_airflow.tasks.scoring.number_match import NumberMatch

BILL: dict[str, JsonValue] = {"vendor": "The ACME Ltd", "total": 42.5, "paid": True, "note": None, "items": [1, "b"]}
CHOSEN = JsonFields.model_validate(
    {"fields": {"vendor": {"by": "exact", "normalized": True}, "total": {"by": "number", "relative": 0.01}}}
)
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@pytest.mark.parametrize(
    ("rule", "change", "soft"),
    [
        (JsonFields(), {"more": 1}, 1.0),
        (JsonFields(), {"total": "$42.50"}, 1.0),
        (JsonFields(), {"total": 42}, 0.8),
        (JsonFields(), {"total": "40 or 42.5"}, 0.8),
        (JsonFields(), {"total": [40, 42.5]}, 0.8),
        (JsonFields(), {"items": [True, "b"]}, 0.8),
        (JsonFields(), {"items": [1.0, "b"]}, 1.0),
        (JsonFields(), {"paid": 1}, 0.8),
        (JsonFields(), {"note": "", "items": [1]}, 0.6),
        (CHOSEN, {"paid": False, "note": "x"}, 1.0),
        (CHOSEN, {"vendor": "acme ltd", "total": 42.9}, 1.0),
        (CHOSEN, {"total": None}, 0.5),
    ],
)
def test_the_share_of_fields_that_are_right(rule: JsonFields, change: dict[str, JsonValue], soft: float) -> None:
    rule.check(BILL, {})
    score = rule.score(f"So: {json.dumps(BILL | change)}", BILL, {})
    assert score.soft == pytest.approx(soft)
    assert score.hard == float(soft == 1.0)


def test_a_missing_field_counts_as_null_also_of_a_reference_that_is_a_text() -> None:
    without = {name: value for name, value in BILL.items() if name not in ("note", "total")}
    score = JsonFields().score(json.dumps(without), json.dumps(BILL), {})
    assert score.soft == pytest.approx(0.8)
    assert '{"total": 42.5}' in score.feedback
    assert JsonFields().score("So: {}", BILL, {}).soft == pytest.approx(0.2)


@pytest.mark.parametrize("after", [' The form is {"fields": {}}.', "\n```json\n{}\n```", '\n```\n{"note ": 1}\n```'])
def test_a_later_object_without_such_a_field_replaces_no_answer(after: str) -> None:
    assert JsonFields().score(json.dumps(BILL) + after, BILL, {}).hard == 1.0


@pytest.mark.parametrize("answer", ["none", "[1]"])
def test_an_answer_without_an_object_is_wrong(answer: str) -> None:
    score = CHOSEN.score(answer, BILL, {})
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert score.feedback.endswith(f'"{answer}"')


@pytest.mark.parametrize(
    ("rule", "reference", "said"),
    [
        (JsonFields(), "{", "expected a JSON object .*'{'"),
        (JsonFields(), {}, "expected a JSON object"),
        (CHOSEN, {"vendor": "x"}, "'total'"),
        (CHOSEN, {"vendor": "x", "total": "much"}, "total: .*'much'"),
        (CHOSEN, {"vendor": "", "total": 1}, "vendor: "),
    ],
)
def test_a_reference_that_is_of_no_use_is_explained(rule: JsonFields, reference: JsonValue, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rule.check(reference, {})


def test_a_rule_of_a_field_that_is_unknown_is_named() -> None:
    with pytest.raises(ValidationError, match=r"fields\.total"):
        JsonFields.model_validate({"fields": {"total": {"by": "nearly"}}})


@given(st.dictionaries(st.text(), SIMPLE, min_size=1))
def test_the_reference_itself_is_right(reference: dict[str, Any]) -> None:
    JsonFields().check(reference, {})
    assert JsonFields().score(json.dumps(reference), reference, {}).hard == 1.0


@given(st.dictionaries(st.text(), SIMPLE, min_size=1), st.dictionaries(st.text(), SIMPLE))
def test_all_fields_right_is_a_share_of_one(reference: dict[str, Any], answered: dict[str, Any]) -> None:
    score = JsonFields().score(json.dumps(answered), reference, {})
    assert 0.0 <= score.soft <= 1.0
    assert (score.hard == 1.0) == (score.soft == 1.0)


NUMBERS = ListMatch(each=NumberMatch(relative=0.01))
CITIES = ["Paris", "Rome", "Bonn"]


@pytest.mark.parametrize(
    "answer",
    [
        '["Rome", "Paris", "Bonn"]',
        "['Rome', 'Paris', 'Bonn']",
        '```json\n["Rome", "Paris", "Bonn"]\n```',
        'The cities are ["Rome", "Paris", "Bonn"].',
        "Rome, Paris, Bonn",
        "Rome, Paris, and Bonn",
        "- Rome\n- **Paris**\n- Bonn",
        "1. Rome\n2. Paris\n3. Bonn",
        "The cities are:\n- Rome\n- Paris\n- Bonn",
        "[Rome, Paris, Bonn]",
        "Rome、Paris、Bonn",
    ],
)
def test_a_list_is_read_in_many_forms(answer: str) -> None:
    score = ListMatch().score(answer, CITIES, {})
    assert (score.hard, score.soft) == (1.0, 1.0)
    in_order = [ListMatch(ordered=True).score(answer, order, {}).hard for order in (CITIES, ["Rome", "Paris", "Bonn"])]
    assert in_order == [0, 1]


@pytest.mark.parametrize(
    ("rule", "answer", "reference", "soft"),
    [
        (ListMatch(), "Paris", CITIES, 2 / 4),
        (ListMatch(), "Paris, Rome, Oslo", CITIES, 4 / 6),
        (ListMatch(), "Paris, Paris, Rome", CITIES, 4 / 6),
        (ListMatch(), "Oslo", CITIES, 0),
        (ListMatch(), "[]", CITIES, 0),
        (ListMatch(ordered=True), "Rome, Paris, Bonn", CITIES, 4 / 6),
        (ListMatch(), "Paris", "Paris", 1),
        (ListMatch(), "Rome, Paris", "Paris|Rome", 1),
        (ListMatch(), "Rome, Paris", "Paris; Rome", 1),
        (ListMatch(), "Rome, Paris", "['Paris', 'Rome']", 1),
        # A divider may be a part of an entry.
        (ListMatch(), "Trinidad and Tobago, Washington, D.C.", ["Trinidad and Tobago", "Washington, D.C."], 1),
        (ListMatch(), "Trinidad and Tobago and Cuba", ["Trinidad and Tobago", "Cuba"], 1),
        (ListMatch(), "Mars: a trip, Venus", ["Mars: a trip", "Venus"], 1),
        (ListMatch(), "3.5, 35", ["35", "3.5"], 1),
        (NUMBERS, "$1,200; 35%", [35, 1200], 1),
        (NUMBERS, "[1200, 35.1]", [35, 1200], 1),
        (NUMBERS, "100,200", [100, 200], 1),
        (NUMBERS, "5, 35, 1200", [35, 1200], 4 / 5),
        (NUMBERS, "7", [7, 7], 2 / 3),
    ],
)
def test_all_entries_and_no_others_are_right(rule: ListMatch, answer: str, reference: JsonValue, soft: float) -> None:
    rule.check(reference, {})
    score = rule.score(answer, reference, {})
    assert (score.hard, score.soft) == (float(soft == 1), pytest.approx(soft))


@pytest.mark.parametrize(
    ("rule", "reference", "said"),
    [
        (ListMatch(), [], "empty list"),
        (ListMatch(), [["Paris"]], "got"),
        (ListMatch(), "[Paris", "a list in JSON or Python"),
        (NUMBERS, [35, "many"], r"\[1\]: expected one number"),
    ],
)
def test_a_list_that_is_of_no_use_is_explained(rule: ListMatch, reference: JsonValue, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rule.check(reference, {})


WORDS = st.lists(
    st.text("abcxyz", min_size=2, max_size=6).filter(lambda word: word not in ("an", "and")), min_size=1, max_size=6
)


@given(WORDS, WORDS, st.sampled_from([", ", "; ", "\n", " and ", " | "]), st.randoms())
def test_any_order_is_right_and_one_entry_more_or_less_is_wrong(
    wanted: list[str], others: list[str], between: str, chance: object
) -> None:
    shuffled = wanted[:]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ListMatch().score(between.join(shuffled), wanted, {}).hard == 1.0
    assert ListMatch().score(json.dumps(shuffled), wanted, {}).hard == 1.0
    assert ListMatch(ordered=True).score(between.join(wanted), wanted, {}).hard == 1.0
    assert ListMatch().score(between.join([*shuffled, others[0]]), wanted, {}).hard == 0.0
    assert ListMatch().score(between.join(shuffled[1:]), wanted, {}).hard == 0.0
    assert 0.0 <= ListMatch().score(between.join(others), wanted, {}).soft <= 1.0


PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.dictionaries(st.text(max_size=8), PLAIN | st.lists(PLAIN, max_size=3), max_size=3)


@pytest.mark.parametrize(
    ("path", "response", "answer"),
    [
        ("", 'Here: {"a": 1}, or rather {"a": {"b": [2]}}.', '{"a": {"b": [2]}}'),
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
        ("", "nothing: {}", "{}"),
        ("a", '{"a": "Nile"} in the form {"a": "..."}', "Nile"),
        ("a", '{"a": "..."}', "..."),
        ("a", '{"a": "Nile"}, or {"a": ""}', ""),
        ("a", '{"a": 1}, or {"a": null}', "null"),
        ("a", '{"a": [1]}, or {"a": []}', "[]"),
        ("a", 'So {"a": 1}, not\n```json\n{"b": 1}\n```', "1"),
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
