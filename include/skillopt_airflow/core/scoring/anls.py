"""Scoring by likeness: the average normalized Levenshtein similarity of one item (Biten et al. 2019, DocVQA)."""

from typing import Literal

from pydantic import Field

from skillopt_airflow.core.scoring.scoring_rule import Scoring


class Anls(Scoring):
    """Equality as hard score, likeness as soft score; case and the number of blanks do not count."""

    by: Literal["anls"] = "anls"
    threshold: float = Field(default=0.5, gt=0.0, le=1.0)
    """Share of characters that differ from which on the soft score is 0."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Compare the texts character by character."""
        one, other = " ".join(answer.lower().split()), " ".join(expected.lower().split())
        longer = max(len(one), len(other))
        # The distance is at least the difference of the lengths: an answer that is far too long is not looked at.
        if one == other:
            return 1.0, 1.0
        if abs(len(one) - len(other)) >= self.threshold * longer:
            return 0.0, 0.0
        distance = levenshtein(one, other) / longer
        return 0.0, 1.0 - distance if distance < self.threshold else 0.0


def levenshtein(one: str, other: str) -> int:
    """Return the fewest insertions, deletions and replacements that turn one text into the other.

    A row of the usual table is two numbers with a bit per character, which say where it rises and falls (Hyyrö 2003).
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    every, last, distance = (1 << len(one)) - 1, 1 << (len(one) - 1), len(one)
    rises, falls = every, 0
    for character in other:
        same = places.get(character, 0)
        level = (((same & rises) + rises) ^ rises) | same | falls
        up, down = falls | (every & ~(level | rises)), rises & level
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & every, (down << 1) & every
        rises, falls = down | (every & ~(level | up)), up & level
    return distance
