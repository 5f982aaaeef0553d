import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.density import MANY_TOKENS, density, length_warning, tokens_of, weighed
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.training_groups import EvaluationGroup

SKILLS = st.text(min_size=1, max_size=300).map(SkillDocument)


def test_a_token_has_about_four_characters() -> None:
    assert tokens_of(SkillDocument("x" * 400)) == 100
    assert density(0.5, SkillDocument("x" * 400)) == pytest.approx(5.0)
    assert density(0.5, SkillDocument("")) == pytest.approx(500.0)
    # A thousand tokens for a score of 1 have half of the weight.
    rules = EvaluationGroup(semantic_density_weight=0.1)
    assert weighed(1.0, SkillDocument("x" * 4000), rules) == pytest.approx(1.05)


def test_a_skill_of_more_than_2000_tokens_gets_a_warning() -> None:
    assert MANY_TOKENS == 2_000
    assert length_warning(SkillDocument("x" * 4 * MANY_TOKENS)) == ""
    assert "2,001 tokens" in length_warning(SkillDocument("x" * 4 * (MANY_TOKENS + 1)))


@given(SKILLS, SKILLS, st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.sampled_from([(), ("must", "x")]))
def test_density_adds_at_most_its_weight(
    skill: SkillDocument, other: SkillDocument, score: float, weight: float, leading: tuple[str, ...]
) -> None:
    rules = EvaluationGroup(semantic_density_weight=weight, leading_words=leading)
    assert score <= weighed(score, skill, rules) <= score + weight
    if not leading and tokens_of(skill) < tokens_of(other):
        assert weighed(score, skill, rules) >= weighed(score, other, rules)


def test_the_share_of_leading_words_stands_for_the_length_where_there_are_such() -> None:
    rules = EvaluationGroup(semantic_density_weight=0.1, leading_words=("MUST", "never"))
    assert weighed(0.5, SkillDocument("You must. Never, NEVER mustard ever."), rules) == pytest.approx(0.55)
    assert weighed(0.5, SkillDocument(""), rules) == 0.5
    phrases = EvaluationGroup(semantic_density_weight=0.1, leading_words=("do not", "step-by-step"))
    assert weighed(0.5, SkillDocument("Do not guess: go step-by-step, donot."), phrases) == pytest.approx(0.525)
