"""A run's spending: what it is by now, what its budget has left, and the shares that its tasks hold.

A share is recorded in the object store before it is spent, and free once it is stored. It is what its task gets of what
was left when its stage began. What a task that died held stays spent, as nobody knows which of its calls were made; so
the record never covers more calls than the task can be about to make.
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
    """A share of the budget that a task holds, or held when it died; deleted once all its calls are stored."""

    moment: str
    """Name of the task's moment."""
    calls: int
    """The most calls that the task may have made."""


def why_stop(run: TrainingRun, moment: Moment) -> str:
    """Return why the run stops after this moment: a step like its dearest would pass a limit; or empty."""
    budget = run.config.budget
    if not budget.is_limited or moment == run.timeline[-2]:
        return ""
    records = share_records(run)
    # A gate that is decided again must not see what was spent later.
    moments = run.timeline[: run.timeline.index(moment) + 1]
    names = {one.name for one in moments}
    rows = [row for row in run.usage.read(run.ref.benchmark, run.account) if row.moment in names]
    steps = [one.name for one in moments if one.kind == "step"]
    costs = [total_spending([row.call for row in rows if row.moment == step], run.prices) for step in steps]
    stored = Counter(row.share for row in rows)
    lost = sum(max(0, record.calls - stored[share]) for share, record in records.items() if record.moment in names)
    total = total_spending([row.call for row in rows], run.prices)
    return stop_reason(total.model_copy(update={"calls": total.calls + lost}), costs, budget)


def left_of_run(run: TrainingRun) -> RemainingLimits:
    """Return what the run may still spend, beyond what is stored and what its tasks hold."""
    return (
        remaining_limits(run.config.budget, *held_by_share(run).values()) if run.config.budget.is_limited else NO_LIMIT
    )


def held_by_share(run: TrainingRun) -> dict[str, Spending]:
    """Return what is spent by share of the budget; of calls as many as the share's record says, stored or not."""
    records, held = share_records(run), spent_by_share(run)
    for share, record in records.items():
        stored = held.get(share, Spending())
        held[share] = stored.model_copy(update={"calls": max(stored.calls, record.calls)})
    return held


def share_records(run: TrainingRun) -> dict[str, ShareRecord]:
    """Return the records of shares; read before the stored calls, since one is deleted once its calls are stored."""
    folder = shares_folder(run)
    found = {key: run.store.find_model(key, ShareRecord) for key in run.store.list_keys(folder)}
    return {key.removeprefix(folder).removesuffix(".json"): one for key, one in found.items() if one is not None}


def shares_folder(run: TrainingRun) -> str:
    return run.keys.budget_shares(run.account)


def spent_by_share(run: TrainingRun) -> dict[str, Spending]:
    """Return what the stored calls cost, by share of the budget."""
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


def spent_by(run: TrainingRun) -> Spending:
    return Spending().plus(*spent_by_share(run).values())


def unaffordable(run: TrainingRun, rollouts: int) -> str:
    """Return why the budget has no room for so many rollouts of at least one call each; or empty.

    No rollouts need no room.
    """
    if not rollouts:
        return ""
    left = left_of_run(run)
    if left.used_up:
        return f"{left.used_up} is used up"
    if left.calls is not None and left.calls < rollouts:
        return f"budget.max_calls leaves {left.calls} calls, and {rollouts} rollouts are needed"
    return ""


AHEAD = 64
"""Calls of optimizer and judge that are recorded at a time, so that no more are lost if their task dies."""
WHOLE = Fraction(1)


class BudgetShare:
    """The share of one attempt at a task; in a run without limits nothing is read or stored for it.

    Args:
        stage: its stage, whose tasks together get what was left when it began.
        task: the task within its stage, whatever attempt at it this is.
        attempt: a name by which the same attempt goes on in another process; a new one when empty.
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
        """The limit that is used up, once the run has nothing left for the task."""
        self._is_open = self._has_record = False
        self._recorded = 0
        """Calls that the record covers."""
        self._spent = Spending()
        """Tokens and dollars of the calls that were counted."""
        self._stored: dict[str, int] = {}
        """Calls by their part of the usage table, as the same one may be written again."""

    def take(self, most: float) -> RemainingLimits:
        """Take the share, so many calls of it at most; return what is left to the task.

        Raises:
            StoreError: the records or the stored calls cannot be read, or the new record not be written.
        """
        with self._lock:
            if self._id:
                self._take(most)
            return self._left

    def begin(self) -> None:
        """Count a call before it is made.

        Raises:
            BudgetUsedUp: the budget allows none.
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
        """Yield a gateway's part of the share, for as long as the gateway runs.

        Args:
            gateways: those that are still to come, this one included; each gets as much.
            most: the calls that all of them together can make.

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
        """Store calls that the share has paid for, as a part of the usage table that `writer` may close.

        Raises:
            StoreError: they cannot be stored.
        """
        run = self._run
        key = run.usage.append(run.ref.benchmark, run.account, calls, self._moment, self._id, writer)
        self._stored[key] = len(calls)

    def close(self) -> None:
        """Free what was not spent; of calls that were begun and not stored, the record stays. Raise StoreError."""
        if not self._has_record:
            return
        if sum(self._stored.values()) < self._made:
            self._write(self._made)
        else:
            self.free()

    def free(self) -> None:
        """Delete the record, whatever attempt has written it: all its calls are stored. Raise StoreError."""
        if self._id:
            self._run.store.delete(self._key)

    @property
    def _made(self) -> int:
        return 0 if self._left.calls is None else self._recorded - self._left.calls

    @property
    def _key(self) -> str:
        return f"{shares_folder(self._run)}{self._id}.json"

    def _take(self, most: float) -> None:
        self._is_open, made = True, self._made
        own = self._spent.model_copy(update={"calls": made})
        left = self._allowed(own)
        if left.calls is None:
            self._left, self._refused = left, left.used_up
            return
        calls = 0 if left.used_up else int(min(left.calls, most))
        self._hold(made, calls)
        # Of two that take at the same time, at least one sees the other's record by now.
        again = self._allowed(own).calls
        if again is not None and again < calls:
            self._hold(made, max(0, again))
        self._left = left._replace(calls=self._left.calls)
        self._refused = left.used_up or self._left.used_up

    def _allowed(self, own: Spending) -> RemainingLimits:
        """Return what the task may spend next."""
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
        """Have the record cover the calls that were made, and so many more."""
        if made + calls != self._recorded:
            self._write(made + calls)
        self._recorded, self._left = made + calls, self._left._replace(calls=calls)

    def _write(self, calls: int) -> None:
        self._has_record = True
        self._run.store.put_model(self._key, ShareRecord(moment=self._moment.name, calls=calls))


class GatewayShare:
    """A gateway's part of a task's share; `Allotment` of the sandboxes' gateways."""

    def __init__(self, run: TrainingRun, left: RemainingLimits) -> None:
        price, self._run = run.prices.get("target"), run
        self.budget = RemainingBudget(
            calls=left.calls,
            tokens=left.tokens,
            # Amounts of unknown price are not spent any further.
            usd=0.0 if left.usd is not None and price is None else left.usd,
            input_price=0.0 if price is None else price.input,
            output_price=0.0 if price is None else price.output,
        )
        self.spent = Spending()
        self.is_complete = False
        """Whether the gateway has ended, and every call of it is counted."""

    def count(self, call: ModelCall) -> None:
        if self._run.config.budget.is_limited:
            self.spent = self.spent.plus(total_spending((call,), self._run.prices))

    def complete(self) -> None:
        """Free what the gateway has not spent: it has ended, and every call of it is counted."""
        self.is_complete = True
