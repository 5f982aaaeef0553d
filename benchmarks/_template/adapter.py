"""Unscrambling words: the letters of a word in alphabetical order, and the word they make."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.types import Item, JsonObject, Message, Score, Trajectory

_PROMPT = """Which English word do these letters make: {letters}

Reply with the word alone, inside <answer></answer> tags."""


class Unscramble:
    """Items with keys id, letters and words, which lists every word that counts as right."""

    runs_code = False
    text_columns: tuple[str, ...] = ("letters",)
    list_columns: tuple[str, ...] = ("words",)

    def identity(self, record: JsonObject) -> str:
        """The record's id, which no other record has.

        Raises:
            DataError: there is none.
        """
        identity = record.get("id")
        if not isinstance(identity, str) or not identity.strip():
            raise DataError(f"id: expected a non-empty text, got {identity!r}")
        return identity

    def item(self, record: JsonObject) -> Item:
        """One record as an item: what the target may see is public, what only the scorer may see is reference.

        Raises:
            DataError: the letters do not make one of the words.
        """
        letters, words = str(record["letters"]), record["words"]
        if not isinstance(words, list) or not all(sorted(str(word)) == sorted(letters) for word in words):
            raise DataError(f"words: expected a list of words made of exactly the letters {letters}, got {words!r}")
        return Item(id=self.identity(record), public={"letters": letters}, reference={"words": words})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """The skill as system message, then the letters."""
        prompt = _PROMPT.format(letters=public["letters"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def answer(self, response: str) -> str:
        """What the last pair of <answer> tags holds; the whole response without them."""
        tagged = re.findall(r"<answer>(.*?)</answer>", response, re.DOTALL)
        return str(tagged[-1] if tagged else response).strip()

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """The right word counts 1 as hard, and as soft the share of letters that stand in the right order."""
        words = item.reference["words"]
        expected = [str(word) for word in words] if isinstance(words, list) else []
        answered = trajectory.answer.lower()
        return Score(
            hard=float(answered in expected),
            soft=max(SequenceMatcher(None, answered, word).ratio() for word in expected),
            feedback=f'expected {" or ".join(expected)}; answered "{trajectory.answer}"',
        )


BENCHMARK: Benchmark = Unscramble()
