"""The base of all rules that compare an answer with its reference."""

import ast
import json
import math
import tokenize
from collections.abc import Callable
from itertools import pairwise

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, Score, Value
from skillopt_airflow.tasks.record_fields import short_repr

MAX_ANSWER_CHARS = 20_000
"""Longer answers score 0; they come from models that loop."""


def score_safely(answer: str, score: Callable[[], Score]) -> Score:
    """Return the score of an answer; 0 with the reason if the answer is too long or the rule fails on it."""
    why = f"it has {len(answer)} characters, and at most {MAX_ANSWER_CHARS} are compared"
    if len(answer) <= MAX_ANSWER_CHARS:
        try:
            return score()
        except Exception as error:  # noqa: BLE001 - benchmarks can bring their own rules
            # One answer must not fail the task, and with it the rollouts of all others.
            why = f"{type(error).__name__}: {error}"[:300]
    return Score(hard=0.0, soft=0.0, feedback=f"the answer cannot be read: {why}")


class Scoring(Value):
    """Base of the rules; `by` in YAML selects one by its name.

    Rules that compare two strings define `compare`; others define `_score`. A reference is one value or a list of
    alternatives, of which the best counts.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys of the item's public fields that the rule reads."""
        return ()

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        """Raise DataError if a reference is unusable; the message names valid ones, and the caller adds the place."""
        for expected in alternatives(reference):
            self.check_text(expected)

    def check_text(self, expected: str) -> None:
        """Check one alternative; raise DataError if it is unusable."""

    def score(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare an answer with a reference that has passed `check`; see `score_safely`."""
        return score_safely(answer, lambda: self._score(answer, reference, public))

    def _score(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Score an answer that isn't too long; any exception counts as a score of 0."""
        references = alternatives(reference)
        judged = [self.compare(answer, expected) for expected in references]
        expected = " or ".join(f'"{expected}"' for expected in references)
        return Score(
            hard=max(hard for hard, _ in judged),
            soft=max(soft for _, soft in judged),
            feedback=f'expected {expected}; answered "{answer}"',
        )

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Return the hard and the soft score of an answer against one alternative."""
        raise NotImplementedError


def alternatives(reference: JsonValue) -> list[str]:
    """Return the values of a reference, one or a list, as strings; raise DataError if one has another type."""
    values = reference if isinstance(reference, list) else [reference]
    if not values:
        raise DataError("expected a value or a list of at least one, got an empty list")
    return [_text(value) for value in values]


def parse_list(reference: JsonValue, openings: str = "[") -> JsonValue:
    """Return the list that a string holds in JSON or Python, and any other value unchanged.

    With the openings `[{` the string may also hold an object. Raise DataError if it starts like a list but isn't one.
    """
    if not isinstance(reference, str) or not reference.lstrip().startswith(tuple(openings)):
        return reference
    try:
        values: JsonValue = json.loads(reference)
    except ValueError:
        try:
            values = ast.literal_eval(reference.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(f"expected a list in JSON or Python, got {short_repr(reference)}") from error
        if _are_texts_side_by_side(reference.strip()):
            problem = "strings without commas between them, as numpy prints an array. Write the list as JSON"
            raise DataError(f"{problem}: {short_repr(reference)}") from None
    return values


def _are_texts_side_by_side(source: str) -> bool:
    """Return whether Python would concatenate adjacent strings."""
    lines = iter(source.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    kinds = [token.type for token in tokens if token.type != tokenize.NL]
    return any(kind == following == tokenize.STRING for kind, following in pairwise(kinds))


def _text(value: JsonValue) -> str:
    if isinstance(value, str) and value.strip():
        return value
    # Includes booleans, as true and false.
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    raise DataError(f"expected a non-empty string or a number, or a list of them, got {short_repr(value)}")
