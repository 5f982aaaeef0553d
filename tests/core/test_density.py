import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.density import DENSITY_WEIGHT, MANY_TOKENS, density, length_warning, tokens_of, weighed
from skillopt_airflow.core.skill import SkillDocument

SKILLS = st.text(min_size=1, max_size=300).map(SkillDocument)


def test_a_token_has_about_four_characters() -> None:
    assert tokens_of(SkillDocument("x" * 400)) == 100
    assert density(0.5, SkillDocument("x" * 400)) == pytest.approx(5.0)
    assert density(0.5, SkillDocument("")) == pytest.approx(500.0)
    # A thousand tokens for a score of 1 have half of the weight.
    assert weighed(1.0, SkillDocument("x" * 4000)) == pytest.approx(1 + DENSITY_WEIGHT / 2)


def test_a_skill_of_more_than_2000_tokens_gets_a_warning() -> None:
    assert MANY_TOKENS == 2_000
    assert length_warning(SkillDocument("x" * 4 * MANY_TOKENS)) == ""
    assert "2,001 tokens" in length_warning(SkillDocument("x" * 4 * (MANY_TOKENS + 1)))


@given(SKILLS, SKILLS, st.floats(0.0, 1.0))
def test_density_adds_at_most_its_weight(skill: SkillDocument, other: SkillDocument, score: float) -> None:
    assert score <= weighed(score, skill) <= score + DENSITY_WEIGHT
    if tokens_of(skill) < tokens_of(other):
        assert weighed(score, skill) >= weighed(score, other)
