from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.scoring.choice_match import MAX_CHARS, plain_maths, same_maths
from skillopt_airflow.tasks.scoring.number_match import MAX_DIGITS, NumberMatch, numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("−3", -3),
        (".5", "1/2"),
        ("1,234,567.8", "1234567.8"),
        ("1\u202f234\u202f567.8", "1234567.8"),
        ("\u20115", -5),
        ("\\$18", 18),
        ("€ 20 a month", 20),
        ("3/4", "3/4"),
        ("-1 1/2 cups", "-3/2"),
        ("-\\dfrac{1}{2}", "-1/2"),
        ("2\\frac{1}{2}", "5/2"),
        ("2.5e3", 2500),
        ("1.5 × 10^3", 1500),
        ("1.5·10^3", 1500),
        ("3.2x10^5", 320000),
        ("3.2 × 10⁻²", "4/125"),
        ("2 x 10 cm", 10),
        ("-10^{6}", -1000000),
        ("between 2 and 10^-2", "1/100"),
        ("6 \\times 10^{-2}", "3/50"),
        ("1{,}000", 1000),
        ("x_1 = 5", 5),
        ("3-5", 5),
        ("42 (of 50)", 42),
        ("1/0 or 3", 3),
    ],
)
def test_the_last_number_of_a_text(text: str, value: str | int) -> None:
    assert numbers(text)[-1].value == Fraction(value)


@pytest.mark.parametrize("text", ["", "none", "1/0", "H2O", "$", "-", "9" * (MAX_DIGITS + 1)])
def test_a_text_without_a_number(text: str) -> None:
    assert numbers(text) == []


@pytest.mark.parametrize(
    ("reference", "answer", "rule", "right"),
    [
        ("She sold 48/2 = <<48/2=24>>24 clips.\n#### 72", "72", NumberMatch(), True),
        ("#### 1,000", "$1000", NumberMatch(), True),
        (72, "So 48 + 24 = 72 clips", NumberMatch(), True),
        (100, "101", NumberMatch(relative=0.01), True),
        (-100, "-99", NumberMatch(relative=0.01), True),
        (1, "1.05", NumberMatch(absolute=0.05), True),
        (1, "1.0501", NumberMatch(absolute=0.05), False),
        (0, "0.001", NumberMatch(relative=0.5), False),
        (10, "12", NumberMatch(absolute=1, relative=0.2), True),
        ("12.34%", "0.1234", NumberMatch(), True),
        (12.34, "12.34 percent", NumberMatch(), True),
        # The tolerance is in the reference's scale.
        ("12%", "0", NumberMatch(absolute=0.5), False),
        ("12%", "0.122", NumberMatch(absolute=0.5), True),
        (0.12, "12.4%", NumberMatch(absolute=0.005), True),
        (42, "42 or 43", NumberMatch(), False),
        ([1, 2], "2", NumberMatch(), True),
    ],
)
def test_what_is_right(reference: JsonValue, answer: str, rule: NumberMatch, right: bool) -> None:
    rule.check(reference, {})
    score = rule.score(answer, reference, {})
    assert (score.hard, score.soft) == (right, right)


@pytest.mark.parametrize("reference", ["none", "between 5 and 7", "", None, [42, "x"], "#### "])
def test_a_reference_without_one_number_is_explained(reference: JsonValue) -> None:
    with pytest.raises(DataError, match="expected"):
        NumberMatch().check(reference, {})


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=4))
def test_separators_and_currency_do_not_change_a_number(number: object) -> None:
    for spelling in (f"{number}", f"{number:,}", f"{number} dollars", f"= {number}."):
        assert NumberMatch().score(spelling, str(number), {}).hard == 1.0, spelling


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(0, 50))
def test_a_wider_tolerance_accepts_no_less(answered: int, expected: int, tolerance: int) -> None:
    judged = [
        NumberMatch(absolute=allowed).score(str(answered), expected, {}).hard
        for allowed in (0, tolerance, tolerance + 1)
    ]
    assert judged == sorted(judged)
    assert judged[1] == float(abs(answered - expected) <= tolerance)


@given(st.text(alphabet="0123456789.,/-+%$ e^()x*{}\\", max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert NumberMatch().score(text, 1, {}).hard in (0.0, 1.0)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$14$.", "14"),
        ("1,690 cm^2", "$1690cm^2$"),
        ("0.8", "$\\frac{4}{5}$"),
        ("\\frac45", "0.8"),
        ("62°", "62^\\circ "),
        ("816.81 cm³", "Volume $=816.81 \\mathrm{~cm}^{3}$"),
        ("V=816.81\\text{ cm}^3", "816.81 cm^3"),
        ("r = 7", "$$r=7.00$$"),
        ("9√3/2", "\\frac{9\\sqrt{3}}{2}"),
        ("4π", "4 \\pi"),
        ("y ≥ -2x-6", "$y \\geq-2 x-6$"),
        ("(315°, 1)", "\\left(315^{\\circ}, 1\\right)"),
        ("bugs bunny", "Bugs Bunny"),
        ("\\frac{x^{2}}{81}+\\frac{y^{2}}{9}=1", "\\frac{x^2}{81}+\\frac{y^2}{9}=1"),
        ("1 1/2", "1\\frac{1}{2}"),
        ("216 cm^2", "216.\\mathrm{cm}^2"),
    ],
)
def test_spellings_of_one_value(answer: str, expected: str) -> None:
    assert same_maths(answer, expected)
    assert same_maths(expected, answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", ""),
        ("14", "14 cm"),
        ("1 1/2", "11/2"),
        ("1 .5", "1.5"),
        ("1\\frac{1}{2}", "5.5"),
        ("Perimeter = 14 cm", "Area = 14 cm"),
        ("-2x+5", "y=-2x+5"),
        ("(-2,1)", "(-2,1]"),
        ("3,4", "34"),
        ("x^{23}", "x^2 3"),
        ("\\frac{2}{3x}", "\\frac{2}{3}x"),
        ("1/0", "0"),
        ("4\\sqrt{6}", "\\sqrt{96}"),
    ],
)
def test_what_is_not_certain_is_not_the_same(answer: str, expected: str) -> None:
    assert not same_maths(answer, expected)


@given(st.text("\\{}()[]frac sqrt^_=.,0123/+-x°π$", max_size=60), st.text("\\{}0123/.^x ", max_size=20))
def test_any_text_is_read_and_is_the_same_as_itself(text: str, other: str) -> None:
    assert same_maths(text, text) == bool(plain_maths(text))
    assert same_maths(text, other) == same_maths(other, text)


@pytest.mark.parametrize("made_of", ["\\frac{", "(", "\\text{a}", "a=", "√(", "1,111", "degrees "])
def test_a_long_answer_is_compared_at_its_length(made_of: str) -> None:
    """What takes more than a moment does not end within the time of a test."""
    for length in (MAX_CHARS, 100_000):
        text = (made_of * length)[:length]
        assert same_maths(text, text)
        assert not same_maths(text, f"7 {text}")
