import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.prompt_template import PromptTemplate


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


def test_the_columns_that_it_reads_are_known() -> None:
    assert PromptTemplate("k", "{{ a }} {% for b in c %}{{ b }}{% endfor %}").columns == {"a", "c"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ questoin }}", r"^task\.prompt: 'questoin' is undefined; the columns of the record are: question$"),
        ("{{ empty }}", r"^task\.prompt: 'empty' is undefined"),
        ("{{ record['Full name'] }}", r"^task\.prompt: .*no attribute 'Full name'; the columns of the record are:"),
        ("{{ question / 2 }}", r"^task\.prompt: TypeError: "),
        ("{{ question.__class__.__mro__ }}", r"^task\.prompt: SecurityError: "),
        ("{{ question.format_map({}).x.y }}", r"^task\.prompt: "),
        ("{{ question.title }}", r"^task\.prompt: TypeError: title is a function, which cannot be shown"),
        ("{{ [question.format] }}", r"^task\.prompt: TypeError: format is a function, which cannot be shown"),
        ("{{ [question.title] }}", r"^task\.prompt: TypeError: title is a function, which cannot be shown"),
        ("{{ {'a': [question['title']]} }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ question.title ~ '!' }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ [question] | map(attribute='title') | join }}", r"^task\.prompt: TypeError: title is a function"),
        ("{{ record.items }}", r"^task\.prompt: TypeError: items is a function, which cannot be shown"),
        ("{{ question | map('upper') }}", r"^task\.prompt: TypeError: a generator cannot be shown: add \| list or"),
    ],
)
def test_what_a_record_does_not_give_is_named(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rendered(source, question="why?", empty=None)


def test_what_is_no_template_is_named_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^task\.prompt: line 2: no Jinja template: "):
        rendered("Question:\n{{ question }", question="why?")
