"""Semantic density: what a skill scores for the tokens that it adds to every call of the target."""

import re

from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.training_groups import EvaluationGroup

CHARS_PER_TOKEN = 4
"""Characters of a token in English text, roughly; other languages and code have fewer."""

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


def weighed(score: float, skill: SkillDocument, rules: EvaluationGroup) -> float:
    """Return the score with what density adds to it: at most `semantic_density_weight`, and the less, the longer.

    The density d counts as d / (1 + d), or a skill of a few words would win whatever it scores. With `leading_words` it
    is their share in the skill's words, which is what the reference implementation weighs.
    """
    if rules.leading_words:
        share = _share_of(rules.leading_words, skill)
    else:
        dense = density(score, skill)
        share = dense / (1 + dense)
    return score + rules.semantic_density_weight * share


def _share_of(leading: tuple[str, ...], skill: SkillDocument) -> float:
    text = skill.text.casefold()
    found = sum(len(re.findall(rf"\b{re.escape(word)}\b", text)) for word in {word.casefold() for word in leading})
    return found / max(1, len(re.findall(r"\w+", text)))
