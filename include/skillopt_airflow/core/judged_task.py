"""A task whose rules are certain of some answers, and leave the others to a judge."""

from collections.abc import Mapping

from skillopt_airflow.core.declared_task import REFERENCE, DeclaredFilesTask
from skillopt_airflow.core.grading import GradingRequest
from skillopt_airflow.core.scoring.scoring_rule import MAX_ANSWER_CHARS
from skillopt_airflow.core.task_group import TaskGroup
from skillopt_airflow.core.types import Item, JsonObject, Score, Trajectory

QUESTION, CHOICES, RIGHT = "question", "choices", "right"


class JudgedTask(DeclaredFilesTask):
    """Items of a declared task, with the question, its choices by letter and the right letters in their reference.

    Without choices the reference is a text. `decision` is what a benchmark defines.
    """

    def __init__(self, task: TaskGroup, instructions: str) -> None:
        """Take the section of the task, and what the judge is told about agreement."""
        super().__init__(task)
        self._instructions = instructions

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        """Return whether an answer that is not empty is right; None where the rules cannot tell."""
        raise NotImplementedError

    def asked(self, record: JsonObject, question: str, choices: Mapping[str, str], right: frozenset[str]) -> Item:
        """Return the item of a record with what its question is."""
        item = super().item(record)
        reference: JsonObject = {QUESTION: question, CHOICES: dict(choices), RIGHT: [*sorted(right)]}
        return item.model_copy(update={"reference": item.reference | reference})

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Return 1 where the rules are certain that the answer is right, else 0."""
        certain = self._certain(item, trajectory)
        doubt = "; the rules cannot tell whether it agrees" if certain is None else ""
        feedback = f'expected "{" or ".join(_expected(item))}"; answered "{trajectory.answer}"{doubt}'
        return Score(hard=float(certain is True), soft=float(certain is True), feedback=feedback)

    def decides(self, item: Item, trajectory: Trajectory) -> bool:
        """Return whether the rules are certain."""
        return self._certain(item, trajectory) is not None

    def grading(self, item: Item, trajectory: Trajectory) -> GradingRequest:
        """Return question, answer and what is right, by which a model can judge without the picture."""
        question, choices = str(item.reference[QUESTION]), choices_of(item.reference)
        listed = "".join(f"\n{letter}. {text}" for letter, text in choices.items() if text)
        return GradingRequest(
            question=f"{question}{listed}",
            references=tuple(_expected(item)),
            answer=trajectory.answer,
            instructions=self._instructions,
        )

    def _certain(self, item: Item, trajectory: Trajectory) -> bool | None:
        answer = trajectory.answer.strip()
        return self.decision(answer, item.reference) if 0 < len(answer) <= MAX_ANSWER_CHARS else False


def choices_of(reference: JsonObject) -> dict[str, str]:
    """Return the choices of a reference by letter; empty where there are none."""
    choices = reference[CHOICES]
    return {letter: str(text) for letter, text in choices.items()} if isinstance(choices, dict) else {}


def right_letters(reference: JsonObject) -> frozenset[str]:
    """Return the letters of the right choices."""
    right = reference[RIGHT]
    return frozenset(map(str, right)) if isinstance(right, list) else frozenset()


def _expected(item: Item) -> list[str]:
    """Return what counts as right: the letters with their texts, or the text."""
    choices, letters = choices_of(item.reference), sorted(right_letters(item.reference))
    if not letters:
        return [str(item.reference[REFERENCE])]
    return [", ".join(f"{letter}: {choices[letter]}" if choices.get(letter) else letter for letter in letters)]
