import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.tasks.scoring.choice_match import MAX_CHARS, plain_maths, same_maths


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("14.0", "14"),
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
