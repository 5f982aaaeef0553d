"""Semantic density: what a skill scores for the tokens that it adds to every call of the target."""

from skillopt_airflow.core.skill import SkillDocument

CHARS_PER_TOKEN = 4
"""Characters of a token in English text, roughly; other languages and code have fewer."""

DENSITY_WEIGHT = 0.05
"""Half of it is added to a score of 1 with 1,000 tokens."""
MANY_TOKENS = 2_000
"""The paper's skills stay below; a longer one costs at each call, and often says a thing twice."""


def tokens_of(skill: SkillDocument) -> int:
    """Return roughly how many tokens the skill has, at least 1."""
    return max(1, round(len(skill.text) / CHARS_PER_TOKEN))


def length_warning(skill: SkillDocument) -> str:
    """Return the warning that a skill has more than MANY_TOKENS tokens; empty if it has not."""
    if (tokens := tokens_of(skill)) <= MANY_TOKENS:
        return ""
    return (
        f"The skill has about {tokens:,} tokens, more than {MANY_TOKENS:,}, and the target reads them at each call. "
        "Remove rules that repeat others, or train with evaluation.use_semantic_density."
    )


def density(score: float, skill: SkillDocument) -> float:
    """Return the score, a mean of the gate metric, for each 1,000 tokens of the skill."""
    return 1000 * score / tokens_of(skill)


def weighed(score: float, skill: SkillDocument) -> float:
    """Return the score plus up to DENSITY_WEIGHT for density d, which counts as d / (1 + d).

    Without that limit a skill of a few words would win whatever it scores.
    """
    dense = density(score, skill)
    return score + DENSITY_WEIGHT * dense / (1 + dense)
