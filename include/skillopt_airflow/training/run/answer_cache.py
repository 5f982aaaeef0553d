"""Cached answers of the optimizer and the target, and grades of the judge, so that retries cost nothing."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock
from typing import Generic, TypeVar

from pydantic import JsonValue, ValidationError

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import (
    AnswerCut,
    BudgetUsedUp,
    ModelError,
    ModelOutputError,
    ObjectMissing,
    PromptTooLong,
)
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.model_protocols import Optimizer, Output, Target
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Grade, Item, Message, ModelCall, Rollout, Status, canonical_json, sha256
from skillopt_airflow.optimizer.judge import STAGE, grade, judge_instructions
from skillopt_airflow.store.keys import grades_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.grading import GradingRequest, score_by
from skillopt_airflow.tasks.protocols import AsksJudge, Benchmark
from skillopt_airflow.tasks.scoring.scoring_rule import MAX_ANSWER_CHARS
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import BudgetShare

Model = TypeVar("Model")
MISSES = {kind.__name__: kind for kind in (ModelOutputError, AnswerCut, PromptTooLong)}


class StoredReply(Document):
    """A cached reply of the target."""

    text: str


class StoredMiss(Document):
    """The reason for an unusable answer of the optimizer, cached so that a retry doesn't pay for it again."""

    unusable: str
    kind: str
    """Name of the error class; callers retry differently per class."""


class _AnswerCache(Generic[Model]):
    """A cache that connects once, thread-safely, on the first new question."""

    def __init__(self, connect: Callable[[], Model], model: str, store: ObjectStore, folder: str) -> None:
        self._connect, self._model, self._store, self._folder = connect, model, store, folder
        self._lock = Lock()
        self._connected: list[Model] = []

    def _inner(self) -> Model:
        with self._lock:
            if not self._connected:
                self._connected.append(self._connect())
            return self._connected[0]

    def _key(self, stage: str, *question: JsonValue) -> str:
        return f"{self._folder}{stage}-{sha256(canonical_json([self._model, *question]))[:16]}.json"


class CachedOptimizer(_AnswerCache[Optimizer]):
    """An `Optimizer` that caches answers by the question's hash."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the cached answer of the same model to the same question, or call the model.

        Raises:
            ModelOutputError: the answer doesn't fit `output_type` (cached), or the budget is used up (not cached).
            ModelError: the provider did not answer (not cached).
        """
        key = self._key(stage, instructions, prompt, output_type.model_json_schema(), *_hashes(pictures))
        # A separate key, because an empty answer would fit many types.
        miss_key = f"{key}.unusable"
        try:
            return output_type.model_validate_json(self._store.get_bytes(key))
        except (ObjectMissing, ValidationError):
            miss = self._store.find_model(miss_key, StoredMiss)
            if miss is not None:
                raise MISSES[miss.kind](miss.unusable) from None
        try:
            answer = self._inner().ask(stage, instructions, prompt, output_type, pictures)
        except BudgetUsedUp:
            # Not cached: a larger budget may allow the call.
            raise
        except ModelOutputError as error:
            self._store.put_model(miss_key, StoredMiss(unusable=str(error), kind=type(error).__name__))
            raise
        # The key includes the answer's schema, so other versions have other keys.
        self._store.put_json(key, answer.model_dump(mode="json"))
        return answer


class CachedJudge(_AnswerCache[Optimizer]):
    """A judge that caches valid grades by the request's hash."""

    def grade(self, request: GradingRequest) -> Grade:
        """Return the cached grade of the same request, or a new one; raise ModelError."""
        question = request.model_dump(mode="json")
        key = self._key(STAGE, judge_instructions(), question, Grade.model_json_schema())
        try:
            return Grade.model_validate_json(self._store.get_bytes(key))
        except (ObjectMissing, ValidationError):
            found = grade(self._inner(), request)
        self._store.put_json(key, found.model_dump(mode="json"))
        return found


class CachedTarget(_AnswerCache[Target]):
    """A `Target` that caches replies by the hash of the conversation and its pictures."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the cached reply to the same conversation, or a new one; raise ModelError."""
        conversation = [message.model_dump(mode="json") for message in messages]
        key = self._key(stage, [*conversation, *_hashes(pictures)])
        try:
            return self._store.get_model(key, StoredReply).text
        except ObjectMissing:
            text = self._inner().ask(stage, messages, pictures)
        self._store.put_model(key, StoredReply(text=text))
        return text


def _hashes(pictures: Pictures) -> list[str]:
    return [hashlib.sha256(pictures[name]).hexdigest() for name in sorted(pictures)]


def grading_request(
    benchmark: Benchmark, rules: EvaluationGroup, item: Item, rollout: Rollout
) -> GradingRequest | None:
    """Return the judge's question about a rollout; None if no judge is needed, or the answer is too long for rules."""
    is_short = len(rollout.trajectory.answer) <= MAX_ANSWER_CHARS
    if rollout.score is None or rules.judge == "rules" or not (is_short and isinstance(benchmark, AsksJudge)):
        return None
    if rules.judge == "rules_first" and benchmark.decides(item, rollout.trajectory):
        return None
    return benchmark.grading(item, rollout.trajectory)


def with_grade(rollout: Rollout, ask: Callable[[], Grade]) -> Rollout:
    """Return the rollout with the judge's score, or failed without a grade."""
    if rollout.score is None:
        return rollout
    try:
        return Rollout(trajectory=rollout.trajectory, score=score_by(ask(), rollout.score))
    except ModelError as error:
        failed = rollout.trajectory.model_copy(update={"status": Status.JUDGE_ERROR, "error": str(error)[:500]})
        return Rollout(trajectory=failed, score=None)


def grade_rollouts(
    run: TrainingRun, rollouts: Sequence[tuple[Item, Rollout]], at_once: int, share: BudgetShare, calls: list[ModelCall]
) -> list[Rollout]:
    """Return the rollouts, judged where the rules can't decide, or by a cached grade; append new calls to `calls`."""
    rules = run.config.evaluation
    requests = [grading_request(run.benchmark, rules, item, rollout) for item, rollout in rollouts]
    wanted = {request: None for request in requests if request is not None}
    if not wanted:
        return [rollout for _, rollout in rollouts]
    model = run.config.model

    def count(call: ModelCall) -> None:
        calls.append(call)
        share.count(call)

    with ExitStack() as opened:
        judge = CachedJudge(
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
