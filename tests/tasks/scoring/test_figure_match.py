"""OfficeQA's table of examples, and what else its official scorer states of itself."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.tasks.scoring.figure_match import MAX_CHARS, FigureMatch


@pytest.mark.parametrize(
    ("expected", "answer", "tolerance", "score"),
    [
        ("543 million", "543", 0, 1),
        ("543 million", "543 billion", 0, 0),
        ("543 million", "543000000", 0, 0),
        ("$1,234.5", "1234.5", 0, 1),
        ("1234.5", "In 1977 it was 1234.5", 0, 1),
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
    judged = FigureMatch(relative=tolerance).score(answer, expected, {})
    assert (judged.hard, judged.soft) == (score, score)


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [
        ("-25.1", "−25.1", 1),
        ("25.1", "-$25.1", 0),
        ("0", "0.001", 0),
        ("543 billion", "The sum from all of these: 543 billion", 1),
        ("March 1977", "in March, 1977", 1),
        ("Old-Age Fund (OASI)", "old-age fund", 1),
        ("42", "", 0),
        ("42", "42\n43", 0),
        ("42", "\n42\n", 1),
        ("42", "about " * MAX_CHARS + "42", 0),
        ("1.5 billion", "1.5m", 1),
        ("1.5 billion", "1.5 m", 0),
        ("[1, 2]", "[1, 2, 3]", 0),
        ("578 and -76.19", "578, -76.19", 0),
        ("578 and 1957", "578 and 1957 in 1958", 0),
        ("[1 2 3]", "[3 2 1]", 1),
        ("[1.5, 2] million", "1.5 million, 2 million", 1),
        ("[1,200]", "[1, 200]", 0),
        ("[1,000; 2,000]", "2,000; 1,000", 1),
        ("[1%, 2%]", "[1, 2]", 1),
        ("[1, 2] and [3, 4]", "[3, 4] and [1, 2]", 1),
        ("Japan", "Japan (FY)", 1),
        ("Japan (1981)", "Japan 1981", 1),
        ("Japan (1981)", "Japan", 0),
        ("O'Brien", "OBrien", 0),
        ("[Iowa, Ohio]", "Iowa, Ohio", 0),
        ("($1977)", "-1977", 1),
        ("-5", "- 5", 0),
        ("1.5 b", "1.5 billion", 1),
        ("42", "42 per year 1977 to 1978", 1),
    ],
)
def test_verdicts_of_the_official_scorer(expected: str, answer: str, score: float) -> None:
    assert FigureMatch().compare(answer, expected) == (score, score)


@pytest.mark.parametrize(
    ("expected", "answer", "tolerance", "score", "official"),
    [
        # The official scorer reads .21 as 21.
        ("0.21", ".21", 0, 1, 0),
        ("21", ".21", 0, 0, 1),
        ("[.5, 2]", "[2, .5]", 0, 0, 1),
        # It takes the m of March for million, since it cuts the words around a number after 20 characters.
        ("543 thousand", "543 thousand dollars in March", 0, 1, 0),
        # It divides floats, so a difference of exactly the tolerance may be too much.
        ("4", "4.2", 0.05, 1, 0),
    ],
)
def test_known_differences_from_the_official_scorer(
    expected: str, answer: str, tolerance: float, score: float, official: float
) -> None:
    assert FigureMatch(relative=tolerance).compare(answer, expected) == (score, score)
    assert score != official


FIGURES = st.decimals(-(10**6), 10**6, places=2).filter(lambda value: not 1900 <= value <= 2100)
YEARS = st.integers(1900, 2100)


@given(st.lists(FIGURES, min_size=2, max_size=4), YEARS, st.sampled_from([" ", ", ", "; "]))
def test_a_year_after_several_figures_does_not_count(values: list[Decimal], year: int, between: str) -> None:
    listed = f"[{between.join(map(str, values))}]"
    for expected in (listed, f"{listed} million", " and ".join(map(str, values))):
        assert FigureMatch().compare(f"{expected} in {year}", expected)[0] == 1.0
        assert FigureMatch().compare(f"{expected} and 7", expected)[0] == 0.0
    swapped = f"[{between.join(map(str, values[::-1]))}]"
    in_order = between == ", " and values != values[::-1]
    assert FigureMatch().compare(swapped, listed)[0] == float(not in_order)


@given(st.sampled_from(["Japan", "Old-Age Fund"]), FIGURES | YEARS, st.sampled_from(["{} ({})", "{} {}", "{1} {0}"]))
def test_an_answer_with_a_figure_is_wrong_for_a_reference_without_one(words: str, value: object, form: str) -> None:
    assert FigureMatch().compare(form.format(words, value), words)[0] == 0.0


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
