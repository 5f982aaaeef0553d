"""Unscrambling words: the letters of a word in alphabetical order, and the word they make."""

from collections.abc import Sequence

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.tasks.record_fields import text_at, texts_at
from skillopt_airflow.tasks.scoring.extraction import InTags
from skillopt_airflow.tasks.scoring.text_match import Anls

_PROMPT = """Which English word do these letters make: {letters}

Think it through first. End with the word only, inside <answer></answer> tags."""


class Unscramble:
    """Items with keys id, letters and words, which lists every word that counts as right."""

    runs_code = False
    text_columns: tuple[str, ...] = ("letters",)
    list_columns: tuple[str, ...] = ("words",)

    def identity(self, record: JsonObject) -> str:
        """Return the record's id, which no other record has."""
        return text_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return one record as an item: what the target may see is public, what only the scorer may see is reference.

        Raises:
            DataError: a key is missing, or the letters do not make one of the words.
        """
        letters, words = text_at(record, "letters"), texts_at(record, "words")
        if any(sorted(word) != sorted(letters) for word in words):
            raise DataError(f"words: expected a list of words made of exactly the letters {letters}, got {words!r}")
        return Item(id=self.identity(record), public={"letters": letters}, reference={"words": [*words]})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """Return the skill as system message, then the letters."""
        prompt = _PROMPT.format(letters=public["letters"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def answer(self, response: str) -> str:
        """Return the content of the last pair of <answer> tags; the last line without them."""
        return InTags().extract(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 as hard for the right word, and as soft the share of letters that are as in the right word."""
        return Anls().score(trajectory.answer, item.reference["words"], item.public)


BENCHMARK: Benchmark = Unscramble()
