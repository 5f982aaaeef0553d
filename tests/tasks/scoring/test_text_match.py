from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring
from skillopt_airflow.tasks.scoring.text_match import (
    Anls,
    Contains,
    Exact,
    Matches,
    TokenF1,
    levenshtein,
    normalize,
    token_f1,
)

NORMALIZED = Exact(normalized=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("35", "3.5"),
        ("-5", "5"),
        ("x<3", "x>3"),
        ("C++", "C"),
        ("1/2", "12"),
        ("3:45", "345"),
        ("3,5", "3.5"),
        ("1990-1998", "19901998"),
        ("x-y", "xy"),
        ("x - y", "x y"),
        ("2**3", "2*3"),
        ("x^2", "x2"),
        ("x != 3", "x = 3"),
        ("2*(3+4)", "2*3+4"),
        ("-.5", ".5"),
        ("$-5", "$5"),
        ("€5", "$5"),
        ("1,000", "1.000"),
        ("~5", "5"),
        ("A|B", "AB"),
        ("-x", "x"),
    ],
)
def test_normalized_texts_differ_in_their_numbers_and_operators(one: str, other: str) -> None:
    assert NORMALIZED.compare(one, other) == NORMALIZED.compare(other, one) == (0.0, 0.0)
    assert NORMALIZED.compare(f" {one.lower()}\n", one) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Nile", "nile"),
        ("12,345,678.5", "12345678.5"),
        ("$5", "5"),
        ("50 %", "50%"),
        ("**Paris**", "Paris"),
        ("U.S.A.", "usa"),
        ("−5", "-5"),
        ("1990–1998", "1990-1998"),
        ("+5", "5"),
        ("O’Brien", "O'Brien"),
        ("Paris - France", "Paris France"),
        ("- 5", "5"),
        ("#1", "1"),
        ("T-shirt", "tshirt"),
        ("C++.", "C++"),
        ("a man, a plan", "man plan"),
        ("A", "A"),
        ("+", "+"),
        ("(5)", "5"),
    ],
)
def test_normalized_texts_are_equal_without_case_articles_and_punctuation(one: str, other: str) -> None:
    assert NORMALIZED.compare(one, other) == NORMALIZED.compare(other, one) == (1.0, 1.0)


@given(st.decimals(-(10**6), 10**6, places=2), st.decimals(-(10**6), 10**6, places=2))
def test_normalized_numbers_are_equal_if_they_are_the_same_number(one: Decimal, other: Decimal) -> None:
    assert NORMALIZED.compare(f"The {one:,}.", str(one))[0] == 1.0
    assert NORMALIZED.compare(str(one), str(other))[0] == float(str(one) == str(other))


@given(st.text(max_size=20), st.text(max_size=20))
def test_normalized_texts_that_are_equal_are_equal_to_squad(one: str, other: str) -> None:
    dashes = str.maketrans("−–", "--", "“”„‘’«»")
    if NORMALIZED.compare(one, other)[0]:
        assert normalize(one.translate(dashes)).replace(",", "") == normalize(other.translate(dashes)).replace(",", "")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Nile!", "nile"),
        ("a man, a plan", "man plan"),
        ("an-other", "another"),
        ("Ångström", "ångström"),
        ("The The", ""),
    ],
)
def test_normalization_is_squads(text: str, normal: str) -> None:
    assert normalize(text) == normal


@given(st.text(max_size=60))
def test_normalizing_twice_changes_nothing(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@given(st.text(max_size=40), st.text(max_size=40))
def test_token_f1_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert token_f1(one, other) == token_f1(other, one)
    assert 0.0 <= token_f1(one, other) <= 1.0
    assert token_f1(one, one) == 1.0


@pytest.mark.parametrize(
    ("rule", "answer", "reference", "hard", "soft"),
    [
        (NORMALIZED, "the", "A", 0, 0),
        (NORMALIZED, " A", "A", 1, 1),
        (NORMALIZED, "-", "+", 0, 0),
        (Exact(), " Nile\n", "Nile ", 1, 1),
        (Exact(), "nile", "Nile", 0, 0),
        (Exact(), "7", 7, 1, 1),
        (Exact(), "Nile", ["The Nile", "Nile"], 1, 1),
        (TokenF1(), "nile", ["The Nile", "Nile"], 1, 1),
        (TokenF1(), "the river Nile", ["The Nile", "Nile"], 0, 2 / 3),
        (Contains(), "It is the Nile, in Egypt.", "nile", 1, 1),
        (Contains(), "senile", "Nile", 0, 0),
        (Contains(), "12", 1, 0, 0),
        (Contains(), "1 or 2", 1, 1, 1),
        (Contains(), "答案是北京。", "北京", 0, 0),
        (Contains(whole_words=False), "答案是北京。", "北京", 1, 1),
        (Matches(), "in 1998 or so", r"\b199\d\b", 1, 1),
        (Matches(), "in 2006", r"\b199\d\b", 0, 0),
    ],
)
def test_what_is_right(rule: Scoring, answer: str, reference: str, hard: float, soft: float) -> None:
    rule.check(reference, {})
    score = rule.score(answer, reference, {})
    assert (score.hard, score.soft) == (hard, pytest.approx(soft))


@pytest.mark.parametrize(
    ("rule", "reference", "said"),
    [
        (Exact(), "", "got ''"),
        (Exact(), [], "empty list"),
        (Exact(), ["Nile", {}], "got {}"),
        (Exact(), float("nan"), "got nan"),
        (Contains(), "The", "got 'The'"),
        (Matches(), "(", r"'\('"),
    ],
)
def test_a_reference_that_is_of_no_use_is_explained(rule: Scoring, reference: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rule.check(reference, {})


@given(st.sampled_from([Exact(), NORMALIZED, TokenF1()]), st.text(min_size=1, max_size=40).filter(str.strip))
def test_the_reference_itself_is_right(rule: Scoring, text: str) -> None:
    score = rule.score(text, [text, "other"], {})
    assert (score.hard, score.soft) == (1.0, 1.0)


@given(st.text(max_size=20), st.text("Nile ", min_size=1, max_size=20).filter(normalize), st.text(max_size=20))
def test_what_surrounds_the_reference_does_not_keep_it_from_being_contained(before: str, text: str, after: str) -> None:
    assert Contains().score(f"{before} {text} {after}", text, {}).hard == 1.0


short = st.text("abc ", max_size=12)


@pytest.mark.parametrize(
    ("answer", "reference", "soft"),
    [
        ("t.f. riehl", ["T.F. Riehl", "T. F. Riehl"], 1.0),
        ("  University   of California ", "university of california", 1.0),
        ("universty of california", "university of california", 0.9583),
        ("ab", "ac", 0.0),
        ("abc", "abd", 0.6667),
        ("$ 1,000", "$1,000", 0.8571),
        ("1998", "1996", 0.75),
        ("the answer is 1998", "1998", 0.0),
        ("paris", ["london", "parish"], 0.8333),
    ],
)
def test_scores_of_docvqa(answer: str, reference: str | list[str], soft: float) -> None:
    score = Anls().score(answer, reference, {})
    assert score.soft == pytest.approx(soft, abs=1e-4)
    assert score.hard == float(soft == 1.0)


def test_the_threshold_may_be_another() -> None:
    assert Anls(threshold=1.0).score("ab", "ac", {}).soft == 0.5
    assert Anls(threshold=0.2).score("1998", "1996", {}).soft == 0.0


@given(short, short, short)
def test_the_distance_is_a_metric(one: str, other: str, third: str) -> None:
    assert levenshtein("kitten", "sitting") == 3
    assert (levenshtein(one, other) == 0) == (one == other)
    assert levenshtein(one, other) == levenshtein(other, one)
    assert levenshtein(one, third) <= levenshtein(one, other) + levenshtein(other, third)
    assert levenshtein(one, other) <= max(len(one), len(other))


@given(st.text(max_size=20), st.text(max_size=20).filter(str.strip))
def test_the_score_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert Anls().compare(one, other) == Anls().compare(other, one)
    assert 0.0 <= Anls().compare(one, other)[1] <= 1.0
    assert Anls().compare(other, other) == (1.0, 1.0)
