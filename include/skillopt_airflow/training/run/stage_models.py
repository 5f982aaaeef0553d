"""The models that a stage calls: answers are cached, calls and time are stored."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Semaphore
from typing import Any

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.model_protocols import Optimizer, Target
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.optimizer.sections import GuidedOptimizer
from skillopt_airflow.sandbox.container_loop import STORE_SECONDS
from skillopt_airflow.sandbox.task_workload import union_seconds
from skillopt_airflow.training.run import timing
from skillopt_airflow.training.run.answer_cache import CachedOptimizer, CachedTarget
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import BudgetShare

log = logging.getLogger(__name__)


@contextmanager
def _store_calls(share: BudgetShare, calls: Sequence[ModelCall]) -> Iterator[None]:
    """Store the calls that are appended to the list during the block, periodically and at its end. Raise StoreError."""
    part: Sequence[ModelCall] = ()
    stored = 0

    def store() -> None:
        nonlocal part, stored
        if not part:
            part = calls[stored:]
        # A part whose write got no response stays the same, because it may be stored.
        share.store(part)
        stored, part = stored + len(part), ()

    def follow() -> None:
        try:
            store()
        except StoreError as error:
            log.warning("Storing the latest model calls failed; retrying: %s", error)

    try:
        with timing.repeat_every(STORE_SECONDS, follow):
            yield
    finally:
        while stored < len(calls):
            store()


class _Limited:
    """An `Optimizer` or a `Target` with limited concurrency."""

    def __init__(self, inner: Optimizer | Target, turn: Semaphore) -> None:
        self._inner, self._turn = inner, turn

    def ask(self, *question: Any, **more: Any) -> Any:
        with self._turn:
            return self._inner.ask(*question, **more)


@dataclass(frozen=True)
class Assistants:
    """The two models that a stage calls outside the sandbox; each connects on its first new question."""

    optimizer: Optimizer
    target: Target


@contextmanager
def open_assistants(run: TrainingRun, moment: Moment, stage: str) -> Iterator[Assistants]:
    """Open the models for one task of a moment; store their calls meanwhile, and the task's time at the end.

    Answers are cached by question, so a retry pays for no call twice. `gradient.analyst_workers` limits concurrent
    calls, and the budget limits all calls.
    """
    keys, config = run.keys.moment(moment), run.config.model
    share, calls = BudgetShare(run, moment, stage, "0"), list[ModelCall]()
    turn = Semaphore(run.config.gradient.analyst_workers)
    started = time.time()
    with ExitStack() as opened:
        opened.callback(share.close)
        opened.enter_context(_store_calls(share, calls))

        def count(call: ModelCall) -> None:
            calls.append(call)
            share.count(call)

        def optimizer() -> Optimizer:
            output = run.output_of("optimizer")
            return _Limited(opened.enter_context(run.connections.optimizer(config, count, share.begin, output)), turn)

        def target() -> Target:
            return _Limited(opened.enter_context(run.connections.target(config, count, share.begin)), turn)

        cached = CachedOptimizer(optimizer, str(config.optimizer), run.store, keys.answers)
        yield Assistants(
            optimizer=GuidedOptimizer(cached, run.record.guidance),
            target=CachedTarget(target, str(config.target), run.store, keys.answers),
        )
    model = union_seconds((call.started, call.started + call.seconds) for call in calls)
    row = timing.StageTiming(stage=stage, started=started, ended=time.time(), model=model)
    timing.save(run.store, keys, row)
