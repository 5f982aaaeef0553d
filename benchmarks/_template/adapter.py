"""Unscramble words: find the English word for letters in alphabetical order."""

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
    """Records with id, letters, and words (all right answers)."""

    runs_code = False
    text_columns: tuple[str, ...] = ("letters",)
    list_columns: tuple[str, ...] = ("words",)

    def identity(self, record: JsonObject) -> str:
        """Return a unique id."""
        return text_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return an item; the target sees `public`, only the scorer sees `reference`.

        Raises:
            DataError: a key is missing, or the letters don't match the words.
        """
        letters, words = text_at(record, "letters"), texts_at(record, "words")
        if any(sorted(word) != sorted(letters) for word in words):
            raise DataError(f"words: expected a list of words made of exactly the letters {letters}, got {words!r}")
        return Item(id=self.identity(record), public={"letters": letters}, reference={"words": [*words]})

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        prompt = _PROMPT.format(letters=public["letters"])
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def answer(self, response: str) -> str:
        return InTags().extract(response)

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Score the exact word as hard, and the similarity of the letters as soft."""
        return Anls().score(trajectory.answer, item.reference["words"], item.public)


BENCHMARK: Benchmark = Unscramble()
