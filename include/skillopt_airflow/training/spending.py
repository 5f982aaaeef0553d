"""A run's spending: what it is by now, and what its budget has left."""

from collections import Counter, defaultdict

from skillopt_airflow.core.budget import (
    BATCH_SHARE,
    Left,
    Role,
    Spent,
    dearest,
    exceeded,
    left_of,
    spent,
)
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.training.run import TrainingRun

NO_LIMIT = Left(None, None, None)


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
    total, step = _spent_until(run, moment)
    return exceeded(total, step, budget)


def _spent_until(run: TrainingRun, moment: Moment) -> tuple[Spent, Spent]:
    """Return what the run has spent until a moment is over, and what its dearest step has."""
    records = share_records(run)
    # A gate that is decided again must not see what was spent later.
    moments = run.timeline[: run.timeline.index(moment) + 1]
    names = {one.name for one in moments}
    usage = run.usage.read(run.ref.benchmark, run.account)
    rows = [row for row in usage if row.moment in names]
    steps = [one.name for one in moments if one.kind == "step"]
    costs = [spent([row.call for row in rows if row.moment == step], run.prices) for step in steps]
    stored = Counter(row.share for row in rows)
    lost = sum(max(0, record.calls - stored[share]) for share, record in records.items() if record.moment in names)
    return spent([row.call for row in rows], run.prices).plus(Spent(calls=lost)), dearest(costs)


def left_of_run(run: TrainingRun) -> Left:
    """Return what the run may still spend, beyond what is stored and what its tasks hold."""
    return left_of(run.config.budget, *held_by_share(run).values()) if run.config.budget.is_limited else NO_LIMIT


def held_by_share(run: TrainingRun) -> dict[str, Spent]:
    """Return what is spent by share of the budget; of calls as many as the share's record says, stored or not."""
    records, held = share_records(run), spent_by_share(run)
    for share, record in records.items():
        stored = held.get(share, Spent())
        held[share] = stored.model_copy(update={"calls": max(stored.calls, record.calls)})
    return held


def share_records(run: TrainingRun) -> dict[str, ShareRecord]:
    """Return the records of shares; read before the stored calls, since one is deleted once its calls are stored."""
    folder = shares_folder(run)
    found = {key: run.store.find_model(key, ShareRecord) for key in run.store.list_keys(folder)}
    return {
        key.removeprefix(folder).removesuffix(".json"): record for key, record in found.items() if record is not None
    }


def shares_folder(run: TrainingRun) -> str:
    return run.keys.budget_shares(run.account)


def spent_by_share(run: TrainingRun) -> dict[str, Spent]:
    """Return what the stored calls cost, by share of the budget."""
    total: defaultdict[str, Spent] = defaultdict(Spent)
    sums: defaultdict[tuple[str, Role, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    for share, role, batch, prompt, completion in run.usage.tokens(run.ref.benchmark, run.account):
        found = sums[share, role, batch]
        found[0], found[1], found[2] = found[0] + 1, found[1] + prompt, found[2] + completion
    for (share, role, batch), (calls, prompt, completion) in sums.items():
        price = run.prices.get(role)
        usd = None if price is None else (BATCH_SHARE if batch else 1.0) * price.usd(prompt, completion)
        total[share] = total[share].plus(Spent(calls=calls, tokens=prompt + completion, usd=usd))
    return dict(total)


def spent_by(run: TrainingRun) -> Spent:
    return Spent().plus(*spent_by_share(run).values())


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
