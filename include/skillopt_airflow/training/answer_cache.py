"""Answers that survive a retry: a call that was answered once is not paid again."""

import hashlib
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from pydantic import JsonValue, ValidationError

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import AnswerCut, BudgetUsedUp, ModelOutputError, ObjectMissing, PromptTooLong
from skillopt_airflow.core.grading import GradingRequest
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Optimizer, Output, Target
from skillopt_airflow.core.types import Grade, Message, canonical_json, sha256
from skillopt_airflow.optimizer.judge import STAGE, grade, judge_instructions
from skillopt_airflow.store.objects import ObjectStore

Model = TypeVar("Model")
MISSES = {kind.__name__: kind for kind in (ModelOutputError, AnswerCut, PromptTooLong)}


class StoredReply(Document):
    """A stored reply of the target."""

    text: str


class StoredMiss(Document):
    """The reason why an answer of the optimizer stayed unusable; asking again would pay for the same miss."""

    unusable: str
    kind: str
    """Name of the error, by which a caller asks in another way."""


class _Remembering(Generic[Model]):
    """Connects when it is first asked something new, once, from whichever thread."""

    def __init__(self, connect: Callable[[], Model], model: str, store: ObjectStore, folder: str) -> None:
        self._connect, self._model, self._store, self._folder = connect, model, store, folder
        self._lock = Lock()
        self._connected: list[Model] = []

    def _inner(self) -> Model:
        with self._lock:
            if not self._connected:
                self._connected.append(self._connect())
            return self._connected[0]


class RememberingOptimizer(_Remembering[Optimizer]):
    """An `Optimizer` that stores each answer under the hash of its question, and connects only for a new one."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the stored answer to the same question to the same model, or a new call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type`, now or when it was asked before; or the run's
                budget is used up, which is not remembered.
            ModelError: the provider did not answer; this is not remembered.
        """
        question: list[JsonValue] = [self._model, instructions, prompt, output_type.model_json_schema()]
        question += _hashes(pictures)
        key = _key(self._folder, stage, question)
        try:
            return output_type.model_validate_json(self._store.get_bytes(key))
        except (ObjectMissing, ValidationError):
            self._raise_known_miss(key)
        try:
            answer = self._inner().ask(stage, instructions, prompt, output_type, pictures)
        except BudgetUsedUp:
            # With a larger budget it is asked again.
            raise
        except ModelOutputError as error:
            self._store.put_model(_miss(key), StoredMiss(unusable=str(error), kind=type(error).__name__))
            raise
        # The key holds the answer's schema: an answer of any other version is stored elsewhere.
        self._store.put_json(key, answer.model_dump(mode="json"))
        return answer

    def _raise_known_miss(self, key: str) -> None:
        try:
            miss = self._store.get_model(_miss(key), StoredMiss)
        except ObjectMissing:
            return
        raise MISSES[miss.kind](miss.unusable)


class RememberingJudge(_Remembering[Optimizer]):
    """A judge that stores each grade that counts under the hash of what was asked; without one it is asked again."""

    def grade(self, request: GradingRequest) -> Grade:
        """Return the stored grade of the same request, or a new one; raise ModelError."""
        question: list[JsonValue] = [self._model, judge_instructions(), request.model_dump(mode="json")]
        key = _key(self._folder, STAGE, [*question, Grade.model_json_schema()])
        try:
            return Grade.model_validate_json(self._store.get_bytes(key))
        except (ObjectMissing, ValidationError):
            found = grade(self._inner(), request)
        self._store.put_json(key, found.model_dump(mode="json"))
        return found


class RememberingTarget(_Remembering[Target]):
    """A `Target` that stores each reply under the hash of its conversation and the pictures in it."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the stored reply to the same conversation, or a new call; raise ModelError."""
        conversation: list[JsonValue] = [message.model_dump(mode="json") for message in messages]
        conversation += _hashes(pictures)
        key = _key(self._folder, stage, [self._model, conversation])
        try:
            return self._store.get_model(key, StoredReply).text
        except ObjectMissing:
            text = self._inner().ask(stage, messages, pictures)
        self._store.put_model(key, StoredReply(text=text))
        return text


def _key(folder: str, stage: str, question: list[JsonValue]) -> str:
    return f"{folder}{stage}-{sha256(canonical_json(question))[:16]}.json"


def _hashes(pictures: Pictures) -> list[str]:
    return [hashlib.sha256(pictures[name]).hexdigest() for name in sorted(pictures)]


def _miss(key: str) -> str:
    """Return a key beside the answer's own, because an empty answer would fit many a type."""
    return f"{key}.unusable"
