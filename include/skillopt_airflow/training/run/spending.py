"""A run's spending: the total, the remaining budget, and the shares that its tasks hold.

A share is recorded in the object store before it's spent, and released once its calls are stored. A task gets its part
of the budget that remained when its stage began. The share of a task that died counts as spent, because its calls are
unknown. So a record covers only calls that the task may be about to make.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from threading import Lock
from uuid import uuid4

from skillopt_airflow.core.errors import BudgetUsedUp
from skillopt_airflow.core.run.budget import (
    BATCH_SHARE,
    RemainingLimits,
    Role,
    Spending,
    remaining_limits,
    stop_reason,
    task_limits,
    total_spending,
)
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.training.run.run import TrainingRun

NO_LIMIT = RemainingLimits(None, None, None)


class ShareRecord(Document):
    """A share of the budget that a task holds, or held when it died; deleted once its calls are stored."""

    moment: str
    """Name of the task's moment."""
    calls: int
    """Maximum calls that the task may have made."""


def stop_reason_at(run: TrainingRun, moment: Moment) -> str:
    """Return why the run stops here: one more step at the cost of the most expensive would exceed a limit; or ""."""
    budget = run.config.budget
    if not budget.is_limited or moment == run.timeline[-2]:
        return ""
    records = share_records(run)
    # A repeated gate must not see later spending.
    moments = run.timeline[: run.timeline.index(moment) + 1]
    names = {one.name for one in moments}
    rows = [row for row in run.usage.read(run.ref.benchmark, run.account) if row.moment in names]
    steps = [one.name for one in moments if one.kind == "step"]
    costs = [total_spending([row.call for row in rows if row.moment == step], run.prices) for step in steps]
    stored = Counter(row.share for row in rows)
    lost = sum(max(0, record.calls - stored[share]) for share, record in records.items() if record.moment in names)
    total = total_spending([row.call for row in rows], run.prices)
    return stop_reason(total.model_copy(update={"calls": total.calls + lost}), costs, budget)


def limits_of_run(run: TrainingRun) -> RemainingLimits:
    """Return the remaining budget, without stored calls and the tasks' shares."""
    budget = run.config.budget
    return remaining_limits(budget, *held_by_share(run).values()) if budget.is_limited else NO_LIMIT


def held_by_share(run: TrainingRun) -> dict[str, Spending]:
    """Return the spending per share; calls count as recorded, even if not stored."""
    records, held = share_records(run), spent_by_share(run)
    for share, record in records.items():
        stored = held.get(share, Spending())
        held[share] = stored.model_copy(update={"calls": max(stored.calls, record.calls)})
    return held


def share_records(run: TrainingRun) -> dict[str, ShareRecord]:
    """Return the shares' records. Read them before the calls: a record is deleted once its calls are stored."""
    folder = run.keys.budget_shares(run.account)
    found = {key: run.store.find_model(key, ShareRecord) for key in run.store.list_keys(folder)}
    return {key.removeprefix(folder).removesuffix(".json"): one for key, one in found.items() if one is not None}


def spent_by_share(run: TrainingRun) -> dict[str, Spending]:
    """Return the cost of the stored calls per share."""
    total: defaultdict[str, Spending] = defaultdict(Spending)
    sums: defaultdict[tuple[str, Role, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    for share, role, batch, prompt, completion in run.usage.tokens(run.ref.benchmark, run.account):
        found = sums[share, role, batch]
        found[0], found[1], found[2] = found[0] + 1, found[1] + prompt, found[2] + completion
    for (share, role, batch), (calls, prompt, completion) in sums.items():
        price = run.prices.get(role)
        usd = None if price is None else (BATCH_SHARE if batch else 1.0) * price.usd(prompt, completion)
        total[share] = total[share].plus(Spending(calls=calls, tokens=prompt + completion, usd=usd))
    return dict(total)


def total_spent(run: TrainingRun) -> Spending:
    return Spending().plus(*spent_by_share(run).values())


def budget_shortfall(run: TrainingRun, rollouts: int) -> str:
    """Return why the budget can't cover the rollouts at one call each, or ""."""
    if not rollouts:
        return ""
    left = limits_of_run(run)
    if left.used_up:
        return f"{left.used_up} is used up"
    if left.calls is not None and left.calls < rollouts:
        return f"budget.max_calls leaves {left.calls} calls, and {rollouts} rollouts are needed"
    return ""


AHEAD = 64
"""Optimizer and judge calls recorded at a time; the loss if their task dies."""
WHOLE = Fraction(1)


class BudgetShare:
    """The budget share of one task attempt; without limits, nothing is read or stored.

    Args:
        stage: its stage; the stage's tasks divide the budget that remained when it began.
        task: the task within its stage, the same for all attempts.
        attempt: a name to continue an attempt in another process; a new one if empty.
    """

    def __init__(
        self, run: TrainingRun, moment: Moment, stage: str, task: str, part: Fraction = WHOLE, attempt: str = ""
    ) -> None:
        self._run, self._moment, self._part = run, moment, part
        self._limits = run.config.budget
        self._stage, self._task = f"{moment.name}/{stage}/", f"{moment.name}/{stage}/{task}/"
        self._id = f"{self._task}{attempt or uuid4().hex}" if self._limits.is_limited else ""
        self._lock = Lock()
        self._left = RemainingLimits(0, 0, 0.0) if self._id else NO_LIMIT
        self._refused = ""
        """The exhausted limit, once nothing is left for the task."""
        self._is_open = self._has_record = False
        self._recorded = 0
        """Calls that the record covers."""
        self._spent = Spending()
        """Tokens and dollars of the counted calls."""
        self._stored: dict[str, int] = {}
        """Calls per part of the usage table; a part may be written again."""

    def take(self, most: float) -> RemainingLimits:
        """Take the share, up to `most` calls; return the task's remaining budget.

        Raises:
            StoreError: records or calls cannot be read, or the new record cannot be written.
        """
        with self._lock:
            if self._id:
                self._take(most)
            return self._left

    def begin(self) -> None:
        """Count a call before it is made.

        Raises:
            BudgetUsedUp: the budget allows no further call.
            StoreError: as `take` does.
        """
        with self._lock:
            if self._left.used_up and not self._refused:
                self._take(AHEAD)
            if self._refused:
                raise BudgetUsedUp(f"{self._refused} is used up")
            self._left = self._left.minus(Spending(calls=1))

    def count(self, call: ModelCall) -> None:
        """Count the tokens of a call that was made after `begin`."""
        with self._lock:
            if self._id:
                cost = total_spending((call,), self._run.prices).model_copy(update={"calls": 0})
                self._spent, self._left = self._spent.plus(cost), self._left.minus(cost)

    @contextmanager
    def gateway(self, gateways: int, most: float) -> Iterator["GatewayShare"]:
        """Yield a gateway's part of the share while the gateway runs.

        Args:
            gateways: the remaining gateways, this one included; each gets an equal part.
            most: maximum calls of all of them together.

        Raises:
            StoreError: as `take` does.
        """
        with self._lock:
            if self._id and not self._is_open:
                self._take(most)
            part = self._left.over(gateways)
            self._left = self._left.plus(part, -1)
        given = GatewayShare(self._run, part)
        try:
            yield given
        finally:
            with self._lock:
                unspent = part.minus(given.spent)
                if not given.is_complete and unspent.calls is not None:
                    unspent = unspent._replace(calls=0)
                self._left = self._left.plus(unspent)
                self._spent = self._spent.plus(given.spent.model_copy(update={"calls": 0}))

    def store(self, calls: Sequence[ModelCall], writer: str = "") -> None:
        """Store the share's calls as a part of the usage table; `writer` may close it. Raise StoreError."""
        run = self._run
        key = run.usage.append(run.ref.benchmark, run.account, calls, self._moment, self._id, writer)
        self._stored[key] = len(calls)

    def close(self) -> None:
        """Release the unspent budget; the record stays for calls that were begun and not stored. Raise StoreError."""
        if not self._has_record:
            return
        if sum(self._stored.values()) < self._made:
            self._write(self._made)
        else:
            self.free()

    def free(self) -> None:
        """Delete the record of any attempt, once all its calls are stored. Raise StoreError."""
        if self._id:
            self._run.store.delete(self._key)

    @property
    def _made(self) -> int:
        return 0 if self._left.calls is None else self._recorded - self._left.calls

    @property
    def _key(self) -> str:
        return f"{self._run.keys.budget_shares(self._run.account)}{self._id}.json"

    def _take(self, most: float) -> None:
        self._is_open, made = True, self._made
        own = self._spent.model_copy(update={"calls": made})
        left = self._allowed(own)
        if left.calls is None:
            self._left, self._refused = left, left.used_up
            return
        calls = 0 if left.used_up else int(min(left.calls, most))
        self._hold(made, calls)
        # If two tasks take at the same time, at least one now sees the other's record.
        again = self._allowed(own).calls
        if again is not None and again < calls:
            self._hold(made, max(0, again))
        self._left = left._replace(calls=self._left.calls)
        self._refused = left.used_up or self._left.used_up

    def _allowed(self, own: Spending) -> RemainingLimits:
        """Return the task's remaining budget."""
        held = held_by_share(self._run)
        held.pop(self._id, None)
        others, beside = Spending(), Spending()
        for share, amount in held.items():
            if share.startswith(self._task):
                own = own.plus(amount)
            elif share.startswith(self._stage):
                beside = beside.plus(amount)
            else:
                others = others.plus(amount)
        return task_limits(self._limits, self._part, others=others, beside=beside, own=own)

    def _hold(self, made: int, calls: int) -> None:
        """Record the calls made so far plus `calls` more."""
        if made + calls != self._recorded:
            self._write(made + calls)
        self._recorded, self._left = made + calls, self._left._replace(calls=calls)

    def _write(self, calls: int) -> None:
        self._has_record = True
        self._run.store.put_model(self._key, ShareRecord(moment=self._moment.name, calls=calls))


class GatewayShare:
    """A gateway's part of a task's share; implements `Allotment`."""

    def __init__(self, run: TrainingRun, left: RemainingLimits) -> None:
        price, self._run = run.prices.get("target"), run
        self.budget = RemainingBudget(
            calls=left.calls,
            tokens=left.tokens,
            # Don't spend on a model with an unknown price.
            usd=0.0 if left.usd is not None and price is None else left.usd,
            input_price=0.0 if price is None else price.input,
            output_price=0.0 if price is None else price.output,
        )
        self.spent = Spending()
        self.is_complete = False
        """True once the gateway has ended and all its calls are counted."""

    def count(self, call: ModelCall) -> None:
        if self._run.config.budget.is_limited:
            self.spent = self.spent.plus(total_spending((call,), self._run.prices))

    def complete(self) -> None:
        """Release the unspent budget of a gateway that has ended, with all its calls counted."""
        self.is_complete = True
