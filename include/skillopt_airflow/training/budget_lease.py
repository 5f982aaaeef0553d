"""A task's part of its run's budget: reserved in the object store before it is spent, and settled at the end."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from skillopt_airflow.core.budget import Role, Spent, spent
from skillopt_airflow.core.budget_ledger import PARTS, RENEWED_SECONDS, BudgetLedger, Left
from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.store.shared_documents import change_document
from skillopt_airflow.training.spending import is_limited, remaining, spent_by

if TYPE_CHECKING:
    from skillopt_airflow.training.run import TrainingRun

NOTHING = Spent()
JOB_SECONDS = 25 * 3600.0
"""Longer than a provider may take for a batch job."""

Result = TypeVar("Result")


class BudgetLease:
    """The lease of one task; in a run without limits nothing is ever read or stored for it.

    `work` is what no two tasks do at the same time: whoever begins it anew takes over what a former attempt held. Its
    parts, such as those of the task's gateway and of the judge, each spend for themselves.
    """

    def __init__(self, run: "TrainingRun", work: str) -> None:
        self.run = run
        self.is_limited = is_limited(run.config.budget)
        self._work = work
        self._task = f"{work} {uuid4().hex}"
        self._lock = Lock()
        self._written = 0.0
        """Unix time of the last reservation; 0 before the first."""
        self._parts: list[BudgetPart] = []
        self._ended = NOTHING
        """Spent by parts that have ended."""

    @contextmanager
    def part(self, role: Role = "target", share: int = 0) -> Iterator["BudgetPart"]:
        """Yield a part of the budget for as long as the block runs.

        Args:
            role: that of the model on which it is spent.
            share: reserves at once one of so many parts of what is left, for who cannot ask for more; 0 reserves
                nothing before it is asked for.

        Raises:
            StoreError: what is left cannot be read or written.
        """
        part = BudgetPart(self, role)
        with self._lock:
            self._parts.append(part)
        try:
            if share:
                part.reserve(NOTHING, share)
            yield part
        finally:
            with self._lock:
                self._parts.remove(part)
                self._ended = self._ended.plus(part.counted)

    def reserve(self, part: "BudgetPart", used: Spent, share: int) -> Left:
        """Return what a part that has spent so much may spend next; no more than was left if a limit is used up."""
        with self._lock:
            before = part.used, part.reserved
            part.used, part.reserved = used, NOTHING
            try:
                granted = self._change(share)
            except StoreError:
                part.used, part.reserved = before
                raise
            part.reserved = NOTHING if granted.used_up else granted.amount
            return granted

    def renew(self) -> None:
        """Show that the task lives, if it holds a lease and was not heard of for a while."""
        with self._lock:
            if self._written and time.time() - self._written > RENEWED_SECONDS:
                self._change(0)

    def settle(self) -> None:
        """Give back what was not spent; all calls are recorded by then."""
        with self._lock:
            total = self._ended.plus(*(part.counted for part in self._parts))
            if self._written or total != NOTHING:
                changed_ledger(self.run, lambda ledger: (self._settled(ledger, total), None))
                self._forget()

    def _settled(self, ledger: BudgetLedger, total: Spent) -> BudgetLedger:
        # What was spent of a lease that has expired is a part of what all have spent, as far as it was stored then.
        return ledger.doubted() if self._has_lost(ledger) else ledger.ended(self._task, total)

    def _has_lost(self, ledger: BudgetLedger) -> bool:
        return bool(self._written) and self._task not in ledger.leases

    def _forget(self) -> None:
        """Begin anew, as what was spent so far is a part of what all have spent."""
        self._written, self._ended = 0.0, NOTHING
        for part in self._parts:
            part.used = part.counted = NOTHING

    def _change(self, share: int) -> Left:
        """Have the lease hold what the parts do, and one of so many parts of what is left, which is returned."""
        now = time.time()

        def change(ledger: BudgetLedger) -> tuple[BudgetLedger, tuple[Left, bool, Spent]]:
            ledger = ledger.at(now)
            if not self._written:
                ledger = ledger.taken_over(self._work)
            ledger = _counted(self.run, ledger)
            held, expired = [part.reserved for part in self._parts], self._has_lost(ledger)
            if expired:
                ledger = ledger.doubted()
            else:
                held += [self._ended, *(part.used for part in self._parts)]
            left = ledger.left(self.run.config.budget, self._task, NOTHING.plus(*held))
            granted, amount = left, NOTHING.plus(*held)
            if share and not left.used_up:
                granted = left.part(share)
                amount = granted.amount.plus(*held)
            return ledger.reserved(self._task, amount, now), (granted, expired, amount)

        granted, expired, amount = changed_ledger(self.run, change)
        if expired:
            self._forget()
        self._written = 0.0 if amount == NOTHING else now
        return granted


class BudgetPart:
    """A part of a task's lease; `Allotment` of the sandboxes' gateways."""

    def __init__(self, lease: BudgetLease, role: Role) -> None:
        self._lease = lease
        self._role = role
        self._lock = Lock()
        self._granted = _none_of(lease.run.config.budget)
        self.used = NOTHING
        """Spent when more was asked for last."""
        self.reserved = NOTHING
        """What it may spend since then."""
        self.counted = NOTHING
        """Cost of the calls that it has made so far."""

    @property
    def budget(self) -> RemainingBudget:
        """Amount that may be spent before more is asked for."""
        return remaining(self._lease.run, self._granted, self._role) if self._lease.is_limited else RemainingBudget()

    def more(self, left: RemainingBudget) -> RemainingBudget:
        """Return what may be spent from now on, when so much is left, less than nothing included.

        Raises:
            StoreError: the ledger cannot be read or written.
        """
        gone = Spent(
            calls=_difference(self._granted.calls, left.calls),
            tokens=_difference(self._granted.tokens, left.tokens),
            usd=0.0 if self._granted.usd is None or left.usd is None else max(0.0, self._granted.usd - left.usd),
        )
        self.reserve(self.used.plus(gone), PARTS)
        return self.budget

    def reserve(self, used: Spent, share: int) -> None:
        """Reserve one of so many parts of what is left; raise StoreError."""
        if self._lease.is_limited:
            self._granted = self._lease.reserve(self, used, share)

    def renew(self) -> None:
        """Show that the task lives, if it was not heard of for a while; raise StoreError."""
        self._lease.renew()

    def count(self, call: ModelCall) -> None:
        """Count a call that was made."""
        if self._lease.is_limited:
            with self._lock:
                self.counted = self.counted.plus(spent((call,), self._lease.run.prices))


def reserve_job(run: "TrainingRun", job: str, requests: int) -> RemainingBudget:
    """Reserve the calls of a batch job, as many as are left; return what was left.

    Tokens and dollars are only known when it has ended.

    Args:
        run: the run.
        job: a name that is the same in whatever process the job is seen to.
        requests: its calls.

    Raises:
        StoreError: what is left cannot be read or written.
    """
    budget, now = run.config.budget, time.time()
    if not is_limited(budget):
        return RemainingBudget()

    def change(ledger: BudgetLedger) -> tuple[BudgetLedger, Left]:
        ledger = _counted(run, ledger.at(now))
        left = ledger.left(budget, job, NOTHING)
        if left.used_up:
            return ledger, left
        calls = requests if left.calls is None else min(requests, left.calls)
        return ledger.reserved(job, Spent(calls=calls), now, JOB_SECONDS), left

    return remaining(run, changed_ledger(run, change))


def settle_job(run: "TrainingRun", job: str, calls: Iterable[ModelCall]) -> None:
    """Count what a batch job has spent, instead of what was reserved for it; raise StoreError."""

    def change(ledger: BudgetLedger) -> tuple[BudgetLedger, None]:
        # Without its lease the job is settled already, by a write whose answer was lost, or has expired.
        return (ledger.ended(job, total) if job in ledger.leases else ledger.doubted()), None

    if is_limited(run.config.budget):
        total = spent(calls, run.prices)
        changed_ledger(run, change)


def changed_ledger(run: "TrainingRun", change: Callable[[BudgetLedger], tuple[BudgetLedger, Result]]) -> Result:
    """Change the ledger of a run's budget, nobody coming between, and return the result; raise StoreError."""
    return change_document(run.store, run.keys.budget(run.account), BudgetLedger(), change)


def _counted(run: "TrainingRun", ledger: BudgetLedger) -> BudgetLedger:
    """Return the ledger with what is stored of all calls, where that tells what was spent."""
    return ledger.counted(spent_by(run)) if ledger.is_to_be_counted else ledger


def _none_of(budget: BudgetGroup) -> Left:
    """Return nothing of each limit that the budget has."""
    return Left(
        calls=None if budget.max_calls is None else 0,
        tokens=None if budget.max_tokens is None else 0,
        usd=None if budget.max_usd is None else 0.0,
    )


def _difference(granted: int | None, left: int | None) -> int:
    # More can be left: calls that were counted before, and not made, are given back.
    return 0 if granted is None or left is None else max(0, granted - left)
