"""OfficeQA's table of examples, and what else its official scorer states of itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.scoring.figure_match import MAX_CHARS, FigureMatch


@pytest.mark.parametrize(
    ("expected", "answer", "tolerance", "score"),
    [
        ("543 million", "543", 0, 1),
        ("543 million", "543 billion", 0, 0),
        ("543 million", "543000000", 0, 0),
        ("$1,234.5", "1234.5", 0, 1),
        ("1234.5", "In 1977 it was 1234.5", 0, 1),
        ("100", "101", 0.01, 1),
        ("100", "101.1", 0.01, 0),
        ("12.34%", "12.34", 0, 1),
        ("12.34%", "0.1234", 0, 0),
        ("-25.1", "(25.1)", 0, 1),
        ("March 1977", "1977", 0, 0),
        ("[8, 152260]", "[8,152,260]", 0, 1),
        ("[8, 152260]", "[152260, 8]", 0, 0),
        ("Iowa", "The answer is Iowa", 0, 0),
        ("42", "42 or 43", 0, 0),
        ("42", "<answer>42</answer>", 0, 0),
        ("42", "42 (1977)", 0, 1),
    ],
)
def test_the_table_of_the_official_scorer(expected: str, answer: str, tolerance: float, score: float) -> None:
    judged = FigureMatch(relative=tolerance).judge(answer, expected, {})
    assert (judged.hard, judged.soft) == (score, score)


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [
        ("(25.1)", "-25.1", 1),
        ("-25.1", "−25.1", 1),
        ("-25.1", "25.1", 0),
        ("25.1", "-25.1", 0),
        ("25.1", "-$25.1", 0),
        ("0", "0.0", 1),
        ("0", "0.001", 0),
        ("0", "1977", 0),
        ("1977", "1977", 1),
        ("1977", "1978", 0),
        ("1977", "It was in 1977", 1),
        ("1977", "fiscal year (1977)", 1),
        ("543 billion", "543 billion dollars in March", 1),
        ("12.4 million", "12.4 million dollars to keep", 1),
        ("543 billion", "The sum from all of these: 543 billion", 1),
        ("543 thousand", "543 thousand dollars in March", 1),
        ("543 billion", "543 million dollars in March", 0),
        ("March 1977", "march 1977", 1),
        ("March 1977", "in March, 1977", 1),
        ("March 1977", "April 1977", 0),
        ("Iowa", " iowa ", 1),
        ("Iowa", '"Iowa"', 1),
        ("Old-Age Fund (OASI)", "old-age fund", 1),
        ("Iowa", "", 0),
        ("42", "", 0),
        ("42", "42\n43", 0),
        ("42", "\n42\n", 1),
        ("42", "about " * MAX_CHARS + "42", 0),
        ("42", "Unable to determine", 0),
        ("42", "unable to determine, maybe 42", 0),
        ("42", "42 million", 1),
        ("1.5 billion", "1.5 b", 1),
        ("1.5 billion", "1.5m", 1),
        ("1.5 billion", "1.5 m", 0),
        ("3.2 and 4.1", "4.1 and 3.2", 1),
        ("3.2 and 4.1", "3.2", 0),
        ("[1,200; 3]", "[1200; 3]", 1),
        ("[Iowa, Ohio]", "[iowa, ohio]", 1),
        ("[Iowa, Ohio]", "[Ohio, Iowa]", 0),
        ("[1, 2]", "[1, 2, 3]", 0),
        ("[1, 2]", "1, 2", 1),
        ("5", "3-5", 0),
    ],
)
def test_signs_years_words_units_and_lists(expected: str, answer: str, score: float) -> None:
    assert FigureMatch().compare(answer, expected) == (score, score)


@given(st.integers(-(10**9), 10**9), st.integers(0, 4))
def test_a_number_is_right_however_it_is_written(value: int, places: int) -> None:
    number = value / 10**places
    spellings = [f"{number:.{places}f}", f"{number:,.{places}f}", f"{number:,.{places}f} %"]
    assert all(FigureMatch().compare(one, spellings[0]) == (1.0, 1.0) for one in spellings)


@given(st.integers(1, 10**6), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_tolerance_never_makes_an_answer_wrong(value: int, one: float, other: float) -> None:
    answer, (narrow, wide) = f"{value * 1.01:.6f}", sorted((one, other))
    assert FigureMatch(relative=narrow).compare(answer, str(value)) <= FigureMatch(relative=wide).compare(
        answer, str(value)
    )
