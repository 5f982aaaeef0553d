"""The models that a stage calls: answers are cached, calls and time are stored."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from threading import Semaphore

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.model_protocols import Optimizer, Output, Target
from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Message, ModelCall
from skillopt_airflow.optimizer.sections import GuidedOptimizer
from skillopt_airflow.sandbox.container_loop import STORE_SECONDS
from skillopt_airflow.sandbox.task_workload import union_seconds
from skillopt_airflow.training.run import timing
from skillopt_airflow.training.run.answer_cache import CachedOptimizer, CachedTarget
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import BudgetShare

log = logging.getLogger(__name__)


@contextmanager
def stored_calls(share: BudgetShare) -> Iterator[list[ModelCall]]:
    """Yield a thread-safe list of calls; they are stored periodically and when the block ends.

    Raises:
        StoreError: the last calls cannot be stored.
    """
    calls: list[ModelCall] = []
    part: list[ModelCall] = []
    stored = 0

    def store() -> None:
        nonlocal part, stored
        if not part:
            part = calls[stored:]
        # A part whose write got no response stays the same, because it may be stored.
        share.store(part)
        stored, part = stored + len(part), []

    def follow() -> None:
        try:
            store()
        except StoreError as error:
            log.warning("Storing the latest model calls failed; retrying: %s", error)

    try:
        with timing.repeat_every(STORE_SECONDS, follow):
            yield calls
    finally:
        while stored < len(calls):
            store()


class _LimitedOptimizer:
    """An `Optimizer` with limited concurrency."""

    def __init__(self, inner: Optimizer, turn: Semaphore) -> None:
        self._inner, self._turn = inner, turn

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        with self._turn:
            return self._inner.ask(stage, instructions, prompt, output_type, pictures)


class _LimitedTarget:
    """A `Target` with limited concurrency."""

    def __init__(self, inner: Target, turn: Semaphore) -> None:
        self._inner, self._turn = inner, turn

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        with self._turn:
            return self._inner.ask(stage, messages, pictures)


@dataclass(frozen=True)
class Assistants:
    """The two models that a stage calls outside the sandbox; each connects on its first new question."""

    optimizer: Optimizer
    target: Target


@contextmanager
def open_assistants(run: TrainingRun, moment: Moment, stage: str, workers: int | None = None) -> Iterator[Assistants]:
    """Open the models for one task of a moment; store their calls meanwhile, and the task's time at the end.

    Answers are cached by question, so a retry pays for no call twice. `workers` limits concurrent calls (default
    `gradient.analyst_workers`), and the budget limits all calls.
    """
    keys, config = run.keys.moment(moment), run.config.model
    share = BudgetShare(run, moment, stage, "0", Fraction(1))
    turn = Semaphore(run.config.gradient.analyst_workers if workers is None else workers)
    with timing.store_timing(run.store, keys, stage) as clock, ExitStack() as opened:
        opened.callback(share.close)
        calls = opened.enter_context(stored_calls(share))

        def count(call: ModelCall) -> None:
            calls.append(call)
            share.count(call)

        try:
            yield Assistants(
                optimizer=GuidedOptimizer(
                    CachedOptimizer(
                        lambda: _LimitedOptimizer(
                            opened.enter_context(
                                run.connections.optimizer(config, count, share.begin, run.output_of("optimizer"))
                            ),
                            turn,
                        ),
                        str(config.optimizer),
                        run.store,
                        keys.answers,
                    ),
                    run.record.guidance,
                ),
                target=CachedTarget(
                    lambda: _LimitedTarget(
                        opened.enter_context(run.connections.target(config, count, share.begin)), turn
                    ),
                    str(config.target),
                    run.store,
                    keys.answers,
                ),
            )
        finally:
            clock.model = union_seconds((call.started, call.started + call.seconds) for call in calls)
