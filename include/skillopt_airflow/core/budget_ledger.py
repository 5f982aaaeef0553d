"""The rest of a run's budget, where many tasks on many hosts spend it at the same time.

A task reserves a small part of what is left, spends from it without asking anybody, and reserves more when that is
used up. Reservations are counted as if they were spent. What a task did not spend is free again when it ends, or, if it
died, when its lease has expired or its work is begun again, and no other task holds a lease: then what is stored of all
calls is what was spent.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from pydantic import Field

from skillopt_airflow.core.budget import Spent
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.types import Value

PARTS = 16
"""A task reserves one of so many parts of what is left, so that what it holds and does not need is little, and less
the less is left."""
LEASE_SECONDS = 1800.0
"""Seconds after which a task that was not heard of is taken for dead."""
RENEWED_SECONDS = 600.0
"""Seconds after which a task that lives is heard of; hosts' clocks may differ by twice as much and more."""


class Left(NamedTuple):
    """Amounts that may be spent; None is no limit, and 0 or less used up."""

    calls: int | None
    tokens: int | None
    usd: float | None

    @property
    def used_up(self) -> bool:
        """Return whether nothing is left of one limit."""
        return any(amount is not None and amount <= 0 for amount in self)

    def part(self, parts: int) -> "Left":
        """Return one of so many parts, of calls and tokens at least one."""
        return Left(
            calls=None if self.calls is None else max(1, self.calls // parts),
            tokens=None if self.tokens is None else max(1, self.tokens // parts),
            usd=None if self.usd is None else self.usd / parts,
        )

    @property
    def amount(self) -> Spent:
        """Return what is spent when nothing is left of it; 0 of what has no limit."""
        return Spent(
            calls=0 if self.calls is None else self.calls,
            tokens=0 if self.tokens is None else self.tokens,
            usd=0.0 if self.usd is None else self.usd,
        )


class Lease(Value):
    """The part of the budget that one task holds."""

    reserved: Spent
    """All that the task has spent since it began, and what it may spend next."""
    until: float
    """Unix time in seconds at which it expires."""


class BudgetLedger(Document):
    """The account that the tasks of a run share; each change is a new ledger."""

    spent: Spent = Spent()
    """Calls of tasks that hold no lease any more; of those that died, what they had reserved, until it is counted."""
    exact: bool = False
    """Whether that is the cost of those calls, and not yet unknown or, since a task died, too much."""
    leases: Mapping[str, Lease] = Field(default_factory=dict)
    """Leases by task: the name of its work, a space, and what tells the attempts at it apart."""

    def at(self, now: float) -> Self:
        """Return the ledger without the leases that have expired by this Unix time."""
        return self._without([task for task, lease in self.leases.items() if lease.until <= now])

    def taken_over(self, work: str) -> Self:
        """Return the ledger without the leases of former attempts at a task's work, which are dead."""
        return self._without([task for task in self.leases if task.startswith(f"{work} ")])

    def _without(self, dead: Sequence[str]) -> Self:
        """Return the ledger without these leases; as nobody knows what was spent of them, all of it was."""
        if not dead:
            return self
        living = {task: lease for task, lease in self.leases.items() if task not in dead}
        held = [self.leases[task].reserved for task in dead]
        return self.model_copy(update={"spent": self.spent.plus(*held), "exact": False, "leases": living})

    @property
    def is_to_be_counted(self) -> bool:
        """Return whether what was spent is not known and can be: nobody has a lease, so all calls are stored."""
        return not self.exact and not self.leases

    def counted(self, stored: Spent) -> Self:
        """Return the ledger with what is stored of all calls as what was spent."""
        return self.model_copy(update={"spent": stored, "exact": True})

    def doubted(self) -> Self:
        """Return the ledger whose calls are to be counted, as soon as that can be."""
        return self.model_copy(update={"exact": False})

    def left(self, budget: BudgetGroup, task: str, held: Spent) -> Left:
        """Return what nobody has spent or reserved; of this task, count what it holds now instead of its lease."""
        others = [lease.reserved for name, lease in self.leases.items() if name != task]
        gone = self.spent.plus(held, *others)
        usd = None
        if budget.max_usd is not None:
            # What nobody can count is not spent any further.
            usd = 0.0 if gone.usd is None else budget.max_usd - gone.usd
        return Left(
            calls=None if budget.max_calls is None else budget.max_calls - gone.calls,
            tokens=None if budget.max_tokens is None else budget.max_tokens - gone.tokens,
            usd=usd,
        )

    def reserved(self, task: str, amount: Spent, now: float, seconds: float = LEASE_SECONDS) -> Self:
        """Return the ledger in which the task's lease has this amount, all that it has spent included.

        It expires so many seconds from now; one of the same amount is renewed only after a while, and one of nothing
        is not begun.
        """
        before = self.leases.get(task)
        renewed = Lease(reserved=amount, until=now + seconds)
        if before is None:
            unchanged = amount == Spent()
        else:
            unchanged = before.reserved == amount and renewed.until - before.until < RENEWED_SECONDS
        if unchanged:
            return self
        return self.model_copy(update={"leases": {**self.leases, task: renewed}})

    def ended(self, task: str, spent: Spent) -> Self:
        """Return the ledger without the lease of a task that has spent so much, in calls that are stored by now."""
        others = {name: lease for name, lease in self.leases.items() if name != task}
        return self.model_copy(update={"spent": self.spent.plus(spent), "leases": others})
