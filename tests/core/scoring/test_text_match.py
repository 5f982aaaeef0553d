import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.scoring.scoring_rule import Scoring
from skillopt_airflow.core.scoring.text_match import Contains, Exact, Matches, TokenF1, normalise, token_f1

NORMALISED = Exact(normalised=True)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Nile!", "nile"),
        ("a man, a plan", "man plan"),
        ("U.S.A.", "usa"),
        ("Theatre", "theatre"),
        ("an-other", "another"),
        ("rock 'n' roll\n", "rock n roll"),
        ("Ångström", "ångström"),
        ("The The", ""),
        ("", ""),
    ],
)
def test_normalisation_is_squads(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(st.text(max_size=60))
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("answer", "reference", "f1"),
    [
        ("the Nile", "Nile", 1.0),
        ("river Nile", "Nile", 2 / 3),
        ("Nile Nile", "Nile", 2 / 3),
        ("Amazon", "Nile", 0.0),
        ("", "Nile", 0.0),
        ("", "the", 1.0),
    ],
)
def test_token_f1(answer: str, reference: str, f1: float) -> None:
    assert token_f1(answer, reference) == pytest.approx(f1)


@given(st.text(max_size=40), st.text(max_size=40))
def test_token_f1_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert token_f1(one, other) == token_f1(other, one)
    assert 0.0 <= token_f1(one, other) <= 1.0
    assert token_f1(one, one) == 1.0


@pytest.mark.parametrize(
    ("rule", "answer", "reference", "hard", "soft"),
    [
        (Exact(), "Nile", "Nile", 1, 1),
        (NORMALISED, "", "A", 0, 0),
        (NORMALISED, "the", "A", 0, 0),
        (NORMALISED, " A", "A", 1, 1),
        (NORMALISED, "-", "+", 0, 0),
        (Exact(), " Nile\n", "Nile ", 1, 1),
        (Exact(), "nile", "Nile", 0, 0),
        (Exact(), "7", 7, 1, 1),
        (Exact(), "true", True, 1, 1),
        (Exact(), "Nile", ["The Nile", "Nile"], 1, 1),
        (NORMALISED, "the nile.", "Nile", 1, 1),
        (NORMALISED, "river Nile", "Nile", 0, 0),
        (TokenF1(), "nile", ["The Nile", "Nile"], 1, 1),
        (TokenF1(), "the river Nile", ["The Nile", "Nile"], 0, 2 / 3),
        (TokenF1(), "Amazon", "Nile", 0, 0),
        (Contains(), "It is the Nile, in Egypt.", "nile", 1, 1),
        (Contains(), "senile", "Nile", 0, 0),
        (Contains(), "12", 1, 0, 0),
        (Contains(), "1 or 2", 1, 1, 1),
        (Contains(), "答案是北京。", "北京", 0, 0),
        (Contains(whole_words=False), "答案是北京。", "北京", 1, 1),
        (Matches(), "in 1998 or so", r"\b199\d\b", 1, 1),
        (Matches(), "in 2006", r"\b199\d\b", 0, 0),
        (Matches(), "YES", r"(?i)^yes$", 1, 1),
    ],
)
def test_what_is_right(rule: Scoring, answer: str, reference: str, hard: float, soft: float) -> None:
    rule.check(reference, {})
    score = rule.judge(answer, reference, {})
    assert (score.hard, score.soft) == (hard, pytest.approx(soft))


@pytest.mark.parametrize(
    ("rule", "reference", "said"),
    [
        (Exact(), "", "expected a non-empty text or a number, or a list of them, got ''"),
        (Exact(), None, "expected a non-empty text or a number, or a list of them, got None"),
        (Exact(), [], "expected a value or a list of at least one, got an empty list"),
        (Exact(), ["Nile", {}], "or a list of them, got {}"),
        (Exact(), float("nan"), "got nan"),
        (Contains(), "The", "expected a text with more than articles and punctuation, got 'The'"),
        (Matches(), "(", r"expected a regular expression, got no regular expression: '\(': missing \)"),
    ],
)
def test_a_reference_that_is_of_no_use_is_explained(rule: Scoring, reference: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        rule.check(reference, {})


@given(st.sampled_from([Exact(), NORMALISED, TokenF1()]), st.text(min_size=1, max_size=40).filter(str.strip))
def test_the_reference_itself_is_right(rule: Scoring, text: str) -> None:
    score = rule.judge(text, [text, "other"], {})
    assert (score.hard, score.soft) == (1.0, 1.0)


@given(st.text(max_size=20), st.text("Nile ", min_size=1, max_size=20).filter(normalise), st.text(max_size=20))
def test_what_surrounds_the_reference_does_not_keep_it_from_being_contained(before: str, text: str, after: str) -> None:
    assert Contains().judge(f"{before} {text} {after}", text, {}).hard == 1.0


def test_feedback_names_what_was_expected_and_what_came() -> None:
    assert TokenF1().judge("Po", ["The Nile", "Nile"], {}).feedback == 'expected "The Nile" or "Nile"; answered "Po"'
