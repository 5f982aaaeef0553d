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


SHARED = "{% set x = [question] %}" + "{% set x = [x, x] %}" * 60
ROUNDS = "{% for a in range(99999) %}{% for b in range(99999) %}"


@pytest.mark.parametrize(
    "source",
    [
        '{{ "x" * 10**10 }}',
        "{{ question * 10**9 }}",
        "{{ 10**9 * [question] }}",
        '{{ ["x"][0] * 10**10 }}',
        "{{ 2 ** (2 ** 40) }}",
        "{{ 3 // (7 ** (10**8)) }}",
        '{{ "%1000000000d" % 1 }}',
        '{{ "%*d" % (10**9, 1) }}',
        '{{ "%.999999999f" % 1.0 }}',
        '{{ "%(a)1000000000d" % {"a": 1} }}',
        '{{ "%1000000000d" | format(1) }}',
        '{{ ("%(a)s" * 90000) | format(a=question * 100000) }}',
        '{{ "{:1000000000}".format(1) }}',
        '{{ "{a:1000000000}".format_map({"a": 1}) }}',
        "{{ question.center(10**9) }}",
        "{{ question.zfill(10**9) }}",
        '{{ "\t".expandtabs(10**9) }}',
        '{{ question.translate({119: "x" * 1000000}) }}',
        '{{ (1).to_bytes(10**10, "big") }}',
        "{{ lipsum(10**9) }}",
        "{{ question | indent(10**9) }}",
        '{{ ("\n" * 4000) | indent(width="x" * 4000) }}',
        "{{ [1] | tojson(indent=10**9) }}",
        '{{ 1.5 | round(10**9, "ceil") }}',
        '{{ ("a" * 1000000) | replace(new="b" * 1000000, old="a") }}',
        '{{ ("a" * 1000000).replace("a", "b" * 1000000) }}',
        '{{ ["a" * 1000000] | map("replace", "a", "b" * 1000000) | list | length }}',
        '{{ ["a"] | map("center", 10**9) | list | length }}',
        '{{ ("a" * 1000000) | join("b" * 1000000) }}',
        '{{ range(100000) | join(d="b" * 1000000) }}',
        '{{ ("b" * 1000000).join(range(100000) | map("string")) }}',
        "{{ range(10**9) | list }}",
        ROUNDS + "{% endfor %}" * 2,
        ROUNDS + "{{ question }}" + "{% endfor %}" * 2,
        "{% for a in range(99999) %}{{ (question * 100000) | upper | length }}{% endfor %}",
        "{% set x = question %}" + "{% set x = x ~ x %}" * 60,
        "{% set x = question %}" + "{% set x = x + x %}" * 60,
        SHARED + "{{ x }}",
        SHARED + '{{ {"a": x}.items() }}',
        SHARED + "{{ x | tojson }}",
        "{% for a in [1] %}" * 25 + "{% endfor %}" * 25,
    ],
    ids=range(41),
)
def test_a_rendering_ends_before_it_is_too_large(source: str) -> None:
    with pytest.raises(DataError, match=r"^task\.prompt: "):
        rendered(source, question="why?")


@pytest.mark.parametrize(
    "source",
    [
        "{{ q | center(10**9) }}",
        "{{ q | wordwrap(1) }}",
        "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m(q) }}",
        "{% set ns = namespace(x=q) %}{% set ns.x = 1 %}",
        "{% set x %}{{ q }}{% endset %}",
        "{% filter upper %}{{ q }}{% endfilter %}",
        "{% include q %}",
        "{% for x in [[1]] recursive %}{{ loop(x) }}{% endfor %}",
        "{{ " + "(" * 5000 + "q" + ")" * 5000 + " }}",
    ],
    ids=range(9),
)
def test_a_template_has_no_statement_or_filter_without_a_bound(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^task\.prompt: "):
        rendered(source, q="why?")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('{{ "%5.1f%%" | format(12.34) }}|{{ "%s" % q }}', " 12.3%|why?"),
        ("{{ q ~ 1 ~ [2] }}{{ q + '!' }}{{ '-' * 3 }}{{ 7 * 6 }}{{ 2 ** 8 }}", "why?1[2]why?!---42256"),
        ("{{ many | join(', ') }}", "a, b"),
        ("{{ q | replace('y', 'o') }}{{ q.replace('?', '') }}{{ q | truncate(10**6) }}", "who?whywhy?"),
        ("{{ gone | default('none') }}{{ gone is defined }}{{ many | map('upper') | list }}", "noneFalse['A', 'B']"),
        ("{% for x in many if x != 'a' %}{{ loop.length }}{{ loop.last }}{% else %}-{% endfor %}", "1True"),
        ("{% for a in range(300) %}{% for b in range(300) %}x{% endfor %}{% endfor %}", "x" * 90_000),
        ("{{ 'x\ny' | indent(2) }}{{ 1.25 | round(1) }}{{ [3, 1] | sort | first }}", "x\n  y1.21"),
    ],
)
def test_a_template_can_do_what_prompts_need(source: str, text: str) -> None:
    template = PromptTemplate("task.prompt", source)
    for _ in range(2):
        assert template.render({"q": "why?", "many": ["a", "b"]}) == text


def test_a_record_of_a_megabyte_is_rendered_with_each_of_its_parts() -> None:
    documents = [f"{number} " * 2000 for number in range(100)]
    text = rendered("{% for one in documents %}{{ loop.index }}: {{ one | trim }}\n{% endfor %}", documents=documents)
    assert len(text) > sum(map(len, documents))


def test_what_is_no_template_is_named_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^task\.prompt: line 2: no Jinja template: "):
        rendered("Question:\n{{ question }", question="why?")
