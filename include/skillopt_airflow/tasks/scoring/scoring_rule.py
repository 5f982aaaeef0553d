"""Comparing an answer with its reference: what all rules of scoring have in common."""

import ast
import json
import math
import tokenize
from collections.abc import Callable
from itertools import pairwise

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, Score, Value
from skillopt_airflow.tasks.record_fields import shown

MAX_ANSWER_CHARS = 20_000
"""Characters of an answer that are compared. Longer answers come from models that loop."""


def readable(answer: str, judge: Callable[[], Score]) -> Score:
    """Return the score of an answer: 0 with the reason if the answer is too long or makes the rule fail."""
    why = f"it has {len(answer)} characters, and at most {MAX_ANSWER_CHARS} are compared"
    if len(answer) <= MAX_ANSWER_CHARS:
        try:
            return judge()
        except Exception as error:  # noqa: BLE001 - a rule is a benchmark's own code, too
            # One answer must not end the task, and with it the rollouts of all others.
            why = f"{type(error).__name__}: {error}"[:300]
    return Score(hard=0.0, soft=0.0, feedback=f"the answer cannot be read: {why}")


class Scoring(Value):
    """Base of the rules; each has its name in YAML as the value of `by`.

    Most compare two texts: they define `compare`. Others define `scored`. A reference is one value or a list of
    alternatives, of which the best counts.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys of the item's public fields that the rule reads."""
        return ()

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        """Look at a reference before it is used, beside the item's public fields.

        Raises:
            DataError: it is not usable; the message says what would be, and the caller adds where it stands.
        """
        for expected in alternatives(reference):
            self.check_text(expected)

    def check_text(self, expected: str) -> None:
        """Look at one alternative.

        Raises:
            DataError: it is not usable.
        """

    def judge(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare an answer with a reference that has passed `check`; see `readable`."""
        return readable(answer, lambda: self.scored(answer, reference, public))

    def scored(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare an answer that is not too long; anything it raises counts as a score of 0."""
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
    """Return the texts of a reference: of one value, or of each in a list.

    Raises:
        DataError: there is none, or one is neither a text that is not blank, nor a number, nor a truth value.
    """
    values = reference if isinstance(reference, list) else [reference]
    if not values:
        raise DataError("expected a value or a list of at least one, got an empty list")
    return [_text(value) for value in values]


def listed(reference: JsonValue, openings: str = "[") -> JsonValue:
    """Return the list that a text holds in JSON or Python, and everything else as it is.

    With the openings `[{` the text may hold an object, too.

    Raises:
        DataError: the text begins like a list and is none.
    """
    if not isinstance(reference, str) or not reference.lstrip().startswith(tuple(openings)):
        return reference
    try:
        values: JsonValue = json.loads(reference)
    except ValueError:
        try:
            values = ast.literal_eval(reference.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(f"expected a list in JSON or Python, got {shown(reference)}") from error
        if _are_texts_side_by_side(reference.strip()):
            told = "texts without a comma between them, as numpy prints an array; write the list as JSON"
            raise DataError(f"{told}: {shown(reference)}") from None
    return values


def _are_texts_side_by_side(source: str) -> bool:
    """Return whether Python would make one text of several."""
    lines = iter(source.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    kinds = [token.type for token in tokens if token.type != tokenize.NL]
    return any(kind == following == tokenize.STRING for kind, following in pairwise(kinds))


def _text(value: JsonValue) -> str:
    if isinstance(value, str) and value.strip():
        return value
    # bool is a kind of int: true and false in JSON's spelling.
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    raise DataError(f"expected a non-empty text or a number, or a list of them, got {shown(value)}")
