"""Answers that survive a retry, since a call that was answered once is not paid again; and those of the judge."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.types import Grade, Item, ModelCall, Rollout, Status
from skillopt_airflow.store.keys import grades_of
from skillopt_airflow.tasks.grading import GradingRequest, score_by
from skillopt_airflow.tasks.protocols import AsksJudge, Benchmark
from skillopt_airflow.tasks.scoring.scoring_rule import MAX_ANSWER_CHARS
from skillopt_airflow.training.run.spending import BudgetShare

if TYPE_CHECKING:
    from skillopt_airflow.training.run.run import TrainingRun

import hashlib
from threading import Lock
from typing import Generic, TypeVar

from pydantic import JsonValue, ValidationError

from skillopt_airflow.core.errors import AnswerCut, BudgetUsedUp, ModelOutputError, ObjectMissing, PromptTooLong
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.model_protocols import Optimizer, Output, Target
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Message, canonical_json, sha256
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


def in_doubt(benchmark: Benchmark, rules: EvaluationGroup, item: Item, rollout: Rollout) -> GradingRequest | None:
    """Return what a judge is to be asked about a rollout that the rules have scored; None if nothing.

    No judge is asked about an answer that is too long for the rules.
    """
    if len(rollout.trajectory.answer) > MAX_ANSWER_CHARS:
        return None
    if rollout.score is None or rules.judge == "rules" or not isinstance(benchmark, AsksJudge):
        return None
    if rules.judge == "rules_first" and benchmark.decides(item, rollout.trajectory):
        return None
    return benchmark.grading(item, rollout.trajectory)


def with_grade(rollout: Rollout, ask: Callable[[], Grade]) -> Rollout:
    """Return a scored rollout with the judge's score; one that failed if there is no grade."""
    if rollout.score is None:
        return rollout
    try:
        return Rollout(trajectory=rollout.trajectory, score=score_by(ask(), rollout.score))
    except ModelError as error:
        failed = rollout.trajectory.model_copy(update={"status": Status.JUDGE_ERROR, "error": str(error)[:500]})
        return Rollout(trajectory=failed, score=None)


def judged(
    run: "TrainingRun",
    rollouts: Sequence[tuple[Item, Rollout]],
    at_once: int,
    share: BudgetShare,
    calls: list[ModelCall],
) -> list[Rollout]:
    """Return the rollouts with the judge's scores where the rules cannot decide; new calls are added to `calls`.

    A grade is stored by question, answer and judge, so it is paid once, by whichever run comes to it first.
    """
    rules = run.config.evaluation
    requests = [in_doubt(run.benchmark, rules, item, rollout) for item, rollout in rollouts]
    wanted = {request: None for request in requests if request is not None}
    if not wanted:
        return [rollout for _, rollout in rollouts]
    model = run.config.model

    def count(call: ModelCall) -> None:
        calls.append(call)
        share.count(call)

    with ExitStack() as opened:
        judge = RememberingJudge(
            lambda: opened.enter_context(run.connections.judge(model, count, share.begin, run.output_of("judge"))),
            str(model.judge),
            run.store,
            grades_of(run.ref.storage.prefix, run.ref.benchmark),
        )
        with ThreadPoolExecutor(at_once) as pool:
            asked = {request: pool.submit(judge.grade, request) for request in wanted}
        return [
            rollout if request is None else with_grade(rollout, asked[request].result)
            for (_, rollout), request in zip(rollouts, requests, strict=True)
        ]
