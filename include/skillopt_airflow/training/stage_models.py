"""The optimizer in a stage: its answers are remembered, its calls and its time stored."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Semaphore

from skillopt_airflow.core.budget import Role
from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.protocols import Optimizer, Target
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.optimizer.guided import GuidedOptimizer
from skillopt_airflow.sandbox.task_workload import union_seconds
from skillopt_airflow.sandbox.watcher import STORE_SECONDS
from skillopt_airflow.training import timing
from skillopt_airflow.training.answer_cache import RememberingOptimizer, RememberingTarget
from skillopt_airflow.training.budget_lease import BudgetLease
from skillopt_airflow.training.budgeted_models import BudgetedOptimizer, BudgetedTarget, Turns
from skillopt_airflow.training.run import TrainingRun

log = logging.getLogger(__name__)


@contextmanager
def stored_calls(run: TrainingRun, moment: Moment) -> Iterator[list[ModelCall]]:
    """Yield a list to which calls may be added from any thread; each is stored soon, and all are when the block ends.

    Raises:
        StoreError: the last ones cannot be stored.
    """
    calls: list[ModelCall] = []
    part: list[ModelCall] = []
    stored = 0

    def store() -> None:
        nonlocal part, stored
        if not part:
            part = calls[stored:]
        # One whose writing had no answer stays as it is, since it may be there.
        run.usage.append(run.ref.benchmark, run.ref.run, part, moment)
        stored, part = stored + len(part), []

    def follow() -> None:
        try:
            store()
        except StoreError as error:
            log.warning("The calls of the last seconds could not be stored, which is tried again: %s", error)

    try:
        with timing.repeated(STORE_SECONDS, follow):
            yield calls
    finally:
        while stored < len(calls):
            store()


ROLES: tuple[Role, ...] = ("optimizer", "target")


@dataclass(frozen=True)
class Assistants:
    """The two models that a stage outside of the sandbox may ask; each connects at its first new question."""

    optimizer: Optimizer
    target: Target


@contextmanager
def optimizing(run: TrainingRun, moment: Moment, stage: str, workers: int | None = None) -> Iterator[Assistants]:
    """Open the models for one task of a moment; store their calls while it runs, and its time when it ends.

    An answer is stored under its question, so a task that is tried again pays for no call twice. At most so many
    questions are asked at the same time, all of `gradient.analyst_workers` when None, and none beyond the budget.
    """
    keys, config = run.keys.moment(moment), run.config.model
    lease = BudgetLease(run, f"{moment.name}/{stage}")
    at_once = Semaphore(run.config.gradient.analyst_workers if workers is None else workers)
    with timing.timed(run.store, keys, stage) as clock, ExitStack() as opened:
        turns = {role: Turns(opened.enter_context(lease.part(role)), at_once) for role in ROLES}
        opened.callback(lease.settle)
        calls = opened.enter_context(stored_calls(run, moment))

        def count(call: ModelCall) -> None:
            calls.append(call)
            turns[call.role].count(call)

        try:
            yield Assistants(
                optimizer=GuidedOptimizer(
                    RememberingOptimizer(
                        lambda: BudgetedOptimizer(
                            opened.enter_context(run.connections.optimizer(run.model_of("optimizer"), count)),
                            turns["optimizer"],
                        ),
                        str(config.optimizer),
                        run.store,
                        keys.answers,
                    ),
                    run.record.guidance,
                ),
                target=RememberingTarget(
                    lambda: BudgetedTarget(
                        opened.enter_context(run.connections.target(config, count)), turns["target"]
                    ),
                    str(config.target),
                    run.store,
                    keys.answers,
                ),
            )
        finally:
            clock.model = union_seconds((call.started, call.started + call.seconds) for call in calls)
