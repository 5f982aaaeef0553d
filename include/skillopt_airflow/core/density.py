"""Semantic density: what a skill scores for the tokens that it adds to every call of the target."""

from skillopt_airflow.core.skill import SkillDocument

CHARS_PER_TOKEN = 4
"""Characters of a token in English text, roughly; other languages and code have fewer."""


def tokens_of(skill: SkillDocument) -> int:
    """Return roughly how many tokens the skill has, at least 1."""
    return max(1, round(len(skill.text) / CHARS_PER_TOKEN))


def density(score: float, skill: SkillDocument) -> float:
    """Return the score, a mean of the gate metric, for each 1,000 tokens of the skill."""
    return 1000 * score / tokens_of(skill)
