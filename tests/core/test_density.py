import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.density import density, tokens_of
from skillopt_airflow.core.skill import SkillDocument

SKILLS = st.text(min_size=1, max_size=300).map(SkillDocument)


def test_a_token_has_about_four_characters() -> None:
    assert tokens_of(SkillDocument("x" * 400)) == 100
    assert density(0.5, SkillDocument("x" * 400)) == pytest.approx(5.0)


def test_an_empty_skill_has_a_density_too() -> None:
    assert density(0.5, SkillDocument("")) == pytest.approx(500.0)


@given(SKILLS, st.floats(0.0, 1.0))
def test_of_equal_scores_the_shorter_skill_is_the_denser_one(skill: SkillDocument, score: float) -> None:
    longer = SkillDocument(skill.text + "x" * 8)
    assert density(score, longer) <= density(score, skill)
