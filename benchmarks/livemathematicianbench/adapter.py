"""LiveMathematicianBench: questions about recent theorems with five choices."""

import random
from collections.abc import Sequence
from string import ascii_uppercase

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.record_fields import list_at, text_at, whole_number_at
from skillopt_airflow.tasks.scoring.choice_match import ChoiceMatch, check_distinct, choices_by_letter, stated_line
from skillopt_airflow.tasks.scoring.extraction import Boxed, InTags, last_line

_PROMPT = """{question}

{choices}

Reason in a few sentences, then give the letter of the right choice inside <answer></answer> tags."""


class LiveMathematicianBench:
    """Records of the benchmark's monthly files: a question and choices."""

    runs_code = False
    text_columns = ("month",)
    list_columns = ()

    def identity(self, record: JsonObject) -> str:
        """Return month and number, such as 202602-8, because the files have no ids."""
        return f"{text_at(record, 'month')}-{whole_number_at(record, 'no')}"

    def item(self, record: JsonObject) -> Item:
        """Return an item with the right choice, separate in the files, among the others.

        Raises:
            DataError: a key is missing or invalid, or two choices are equal.
        """
        identity, text = self.identity(record), text_at(record, "mcq", "correct_choice", "text")
        others = range(len(list_at(record, "mcq", "choices")))
        choices = [text, *(text_at(record, "mcq", "choices", place, "text") for place in others)]
        check_distinct(choices, "mcq.choices")
        if len(choices) > len(ascii_uppercase):
            raise DataError(f"mcq.choices: expected at most {len(ascii_uppercase) - 1}, got {len(others)}")
        # Seeded by the item, so that the order is reproducible and the right choice isn't always A.
        random.Random(identity).shuffle(choices)  # noqa: S311
        return Item(
            id=identity,
            public={"question": text_at(record, "mcq", "question"), "choices": [*choices]},
            reference={"label": ascii_uppercase[choices.index(text)], "answer": text},
        )

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        choices = "\n".join(f"{label}. {text}" for label, text in choices_by_letter(public["choices"]).items())
        prompt = _PROMPT.format(question=public["question"], choices=choices)
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def answer(self, response: str) -> str:
        """Return the content of <answer> tags, else of \\boxed{}, else the line that states a letter, else the last."""
        marked = InTags().find(response)
        if marked is None:
            marked = Boxed().find(response)
        if marked is None:
            marked = stated_line(response)
        return (last_line(response) if marked is None else marked).strip()

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 for the right letter or text, else 0, as hard and soft."""
        return ChoiceMatch(choices="choices").score(trajectory.answer, item.reference["label"], item.public)


BENCHMARK = LiveMathematicianBench()
