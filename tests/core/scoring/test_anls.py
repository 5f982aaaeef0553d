"""The table follows the paper: a share of 0.5 counts as too far, unlike in the script of the challenge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.scoring.anls import Anls, levenshtein

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
    score = Anls().judge(answer, reference, {})
    assert score.soft == pytest.approx(soft, abs=1e-4)
    assert score.hard == float(soft == 1.0)


def test_the_threshold_may_be_another() -> None:
    assert Anls(threshold=1.0).judge("ab", "ac", {}).soft == 0.5
    assert Anls(threshold=0.2).judge("1998", "1996", {}).soft == 0.0


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
