import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.tasks.prompt_template import PromptTemplate
from skillopt_airflow.tasks.record_fields import (
    MAX_SHOWN,
    identity_at,
    list_at,
    short_repr,
    text_at,
    texts_at,
    value_at,
    whole_number_at,
    without,
)

RECORD: dict[str, Any] = {
    "id": "x",
    "no": 8,
    "yes": True,
    "blank": " ",
    "words": ["a", "b"],
    "mixed": ["a", 1],
    "mcq": {"question": "Which?", "choices": [{"text": "a"}, "b"]},
}


def test_fields_are_read_by_their_path() -> None:
    assert text_at(RECORD, "id") == "x"
    assert text_at(RECORD, "mcq", "question") == "Which?"
    assert texts_at(RECORD, "words") == ["a", "b"]
    assert text_at(RECORD, "mcq", "choices", 0, "text") == "a"
    assert list_at(RECORD, "mcq", "choices") == [{"text": "a"}, "b"]
    assert (identity_at(RECORD, "id"), identity_at(RECORD, "no")) == ("x", "8")
    assert whole_number_at(RECORD, "no") == 8
    assert short_repr("x" * 200) == "'" + "x" * (MAX_SHOWN - 1) + "..."


@pytest.mark.parametrize(
    ("read", "path", "place", "value"),
    [
        (text_at, ["blank"], "blank", "' '"),
        (text_at, ["mcq", "answer"], "mcq.answer", "None"),
        (text_at, ["nothing", "answer"], "nothing", "None"),
        (texts_at, ["mixed"], "mixed", "['a', 1]"),
        (text_at, ["mcq", "choices", 1, "text"], "mcq.choices[1]", "'b'"),
        (text_at, ["id", 0], "id", "'x'"),
        (identity_at, ["yes"], "yes", "True"),
        (whole_number_at, ["yes"], "yes", "True"),
    ],
)
def test_what_is_missing_is_named(read: Any, path: list[str], place: str, value: str) -> None:
    with pytest.raises(DataError, match=rf"^{re.escape(place)}: expected .* got {re.escape(value)}$"):
        read(RECORD, *path)


NESTED: dict[str, Any] = {"a": {"b": [{"c": 1, "d": 2}, {"c": 3}, 5]}, "a.x": "own", "n": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a.x", "own"),
        ("a.b", NESTED["a"]["b"]),
        ("a.b.c", [1, 3, None]),
        ("a.b.c.d", [None, None, None]),
        ("n.x", None),
        ("none.x", None),
        ("a.", None),
    ],
)
def test_a_key_may_be_a_path(key: str, value: object) -> None:
    assert value_at(NESTED, key) == value


def test_a_record_without_a_value_keeps_all_others() -> None:
    assert without(NESTED, "a.b.c") == {"a": {"b": [{"d": 2}, {}, 5]}, "a.x": "own", "n": None}
    assert without(NESTED, "a.x") == {"a": NESTED["a"], "n": None}
    assert without(NESTED, "none.x") == without(NESTED, "n.x") == NESTED
    assert NESTED["a"]["b"][0] == {"c": 1, "d": 2}


def rendered(source: str, **record: object) -> str:
    return PromptTemplate("task.prompt", source).render(record)  # type: ignore[arg-type]


@given(st.text())
def test_what_a_column_holds_is_never_a_template(text: str) -> None:
    assert rendered("<{{ question }}>", question=text) == f"<{text}>"


def test_a_template_has_what_jinja_has() -> None:
    source = "{{ q }}\n{% for option in options %}{{ loop.index }}. {{ option }}\n{% endfor %}{{ hint or 'no hint' }}"
    assert rendered(source, q="a < b?", options=["x", "y"], hint="") == "a < b?\n1. x\n2. y\nno hint"
    assert rendered("{% if hint is defined %}{{ hint }}{% else %}-{% endif %}", hint=None) == "-"
    assert rendered("{{ record['Full name'] }}", **{"Full name": "Ada"}) == "Ada"


@pytest.mark.parametrize("field", ["items", "values", "keys", "get", "copy"])
def test_the_field_of_an_object_comes_before_its_method(field: str) -> None:
    assert rendered(f"{{{{ order.{field} }}}}", order={field: "x"}) == "x"
    assert rendered("{% for key, value in order.items() %}{{ key }}={{ value }}{% endfor %}", order={"a": 1}) == "a=1"


def test_json_is_written_for_a_model_and_not_for_html() -> None:
    value = {"b": "don't <中>", "a": [1, True]}
    assert rendered("{{ v | tojson }}", v=value) == """{"a": [1, true], "b": "don't <中>"}"""
    assert rendered("{{ v | tojson(indent=1) }}", v=[1]) == "[\n 1\n]"
    assert rendered("{{ v | map('upper') | tojson }}", v=["a"]) == '["A"]'
    with pytest.raises(DataError, match="'v' is undefined"):
        rendered("{{ v | tojson }}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ questoin }}", r"^task\.prompt: 'questoin' is undefined; the columns of the record are: question$"),
        ("{{ record['Full name'] }}", r"^task\.prompt: .*no attribute 'Full name'; the columns of the record are:"),
        ("{{ question / 2 }}", r"^task\.prompt: TypeError: "),
        ("{{ question.__class__.__mro__ }}", r"^task\.prompt: SecurityError: "),
        ("{{ question.title }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ [question.format] }}", r"^task\.prompt: TypeError: a prompt cannot use the method format"),
        ("{{ {'a': [question['title']]} }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ question.title ~ '!' }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ [question] | map(attribute='title') | join }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ record.items }}", r"^task\.prompt: TypeError: items is a function"),
        ("{{ question | map('upper') }}", r"^task\.prompt: TypeError: a generator cannot be shown: add \| list or"),
    ],
)
def test_what_a_record_does_not_give_is_named(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rendered(source, question="why?", empty=None)


@pytest.mark.parametrize(
    "source",
    [
        '{{ "x" * 10**10 }}',
        "{{ question * 1000000000 }}",
        "{{ 2 ** 1000000000000 }}",
        '{{ "%1000000000d" % 1 }}',
        "{{ question | center(1000000000) }}",
        "{{ question | wordwrap(1) }}",
        '{{ 1.5 | round(1000000000, "ceil") }}',
        "{{ [1] | batch(1000000000, 0) | list }}",
        "{% set x = question %}{% set x = x ~ x %}",
        "{% set x %}{{ question }}{% endset %}",
        "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m(question) }}",
        "{% filter upper %}{{ question }}{% endfilter %}",
        "{% include question %}",
        "{% for x in [[1]] recursive %}{{ loop(x) }}{% endfor %}",
        "{% for a in [1, 2, 3] %}" * 4 + "{% endfor %}" * 4,
        "{{ " + "(" * 5000 + "question" + ")" * 5000 + " }}",
    ],
)
def test_a_template_has_nothing_that_makes_more_of_a_record(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^task\.prompt: "):
        rendered(source, question="why?")


@pytest.mark.parametrize(
    "source",
    [
        '{{ "{:1000000000}".format(1) }}',
        '{{ ["a"] | map("center", 1000000000) | list }}',
        "{{ question.center(1000000000) }}",
        '{{ "\t".expandtabs(1000000000) }}',
        '{{ (1).to_bytes(10000000000, "big") }}',
        "{{ lipsum(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ range(1000000000) | list }}",
        "{% for a in range(99) %}{% for b in range(99) %}{% for c in range(99) %}{{ long }}" + "{% endfor %}" * 3,
    ],
)
def test_a_rendering_ends_before_it_is_too_large(source: str) -> None:
    with pytest.raises(DataError, match=r"^task\.prompt: "):
        rendered(source, question="why?", long="x" * 1000)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ q ~ 1 ~ [2] }}{{ q + '!' }}{{ 7 - 6 }}", "why?1[2]why?!1"),
        ("{{ q | replace('y', 'o') }}{{ q.replace('?', '') }}{{ q | truncate(1000) }}", "who?whywhy?"),
        ("{{ gone | default('none') }}{{ gone is defined }}{{ many | map('upper') | list }}", "noneFalse['A', 'B']"),
        ("{% for x in many if x != 'a' %}{{ loop.length }}{{ loop.last }}{% else %}-{% endfor %}", "1True"),
    ],
)
def test_a_template_can_do_what_prompts_need(source: str, text: str) -> None:
    assert PromptTemplate("task.prompt", source).render({"q": "why?", "many": ["a", "b"]}) == text


def test_a_template_tells_the_columns_that_it_reads_or_the_line_where_it_is_none() -> None:
    assert PromptTemplate("k", "{{ a }} {% for b in c %}{{ b }}{% endfor %}").columns == {"a", "c"}
    with pytest.raises(ConfigError, match=r"^task\.prompt: line 2: "):
        rendered("Question:\n{{ question }", question="why?")
