"""A run's spending: what it is by now, and the room in its budget for another step, and for its sandboxes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from skillopt_airflow.core.budget import BATCH_SHARE, Role, Spent, dearest, exceeded, model_names, spent, total_usd
from skillopt_airflow.core.budget_ledger import BudgetLedger, Left
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.training.matrix_cells import one_for_each_target
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_record import RunRecord

if TYPE_CHECKING:
    from skillopt_airflow.store.running_tables import CallKind, CallSums


class RoleSpending(Value):
    """The costs of all calls of one model."""

    role: Role
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    """US dollars; None if the price is not known."""


def role_spending(sums: "Mapping[CallKind, CallSums]", record: RunRecord) -> tuple[RoleSpending, ...]:
    """Return what each role of a run took, of those that were asked."""
    found = []
    for role, name in model_names(record.config.model).items():
        price, kinds = record.prices.get(role), {kind: one for kind, one in sums.items() if kind.role == role}
        if kinds:
            shares = {kind: BATCH_SHARE if kind.batch else 1.0 for kind in kinds}
            found.append(
                RoleSpending(
                    role=role,
                    model=str(name),
                    calls=sum(one.calls for one in kinds.values()),
                    prompt_tokens=sum(one.prompt_tokens for one in kinds.values()),
                    completion_tokens=sum(one.completion_tokens for one in kinds.values()),
                    usd=None
                    if price is None
                    else sum(
                        shares[kind] * price.usd(one.prompt_tokens, one.completion_tokens)
                        for kind, one in kinds.items()
                    ),
                )
            )
    return tuple(found)


def together(roles: Iterable[RoleSpending]) -> Spent:
    """Return what all roles took."""
    rows = list(roles)
    return Spent(
        calls=sum(one.calls for one in rows),
        tokens=sum(one.prompt_tokens + one.completion_tokens for one in rows),
        usd=total_usd(one.usd for one in rows),
    )


def why_stop(run: TrainingRun, moment: Moment) -> str:
    """Return why the run stops after this moment: a step like its dearest would pass a limit; or empty."""
    budget = run.config.budget
    if not is_limited(budget) or moment == run.timeline[-2]:
        return ""
    total, step = _spent_until(run, moment)
    return exceeded(total, step, budget)


def affords_rest(run: TrainingRun, moment: Moment) -> bool:
    """Return whether no limit would be passed if every step from this moment on were as dear as the dearest so far."""
    budget, place = run.config.budget, run.timeline.index(moment)
    if not is_limited(budget):
        return True
    total, step = _spent_until(run, run.timeline[place - 1])
    steps = sum(one.kind == "step" for one in run.timeline[place:])
    return not exceeded(total, step.times(steps), budget)


def _spent_until(run: TrainingRun, moment: Moment) -> tuple[Spent, Spent]:
    """Return what the run has spent until a moment is over, and what its dearest step has."""
    # A gate that is decided again must not see what was spent later.
    moments = run.timeline[: run.timeline.index(moment) + 1]
    names = {one.name for one in moments}
    usage = run.usage.read(run.ref.benchmark, run.account)
    rows = [row for row in usage if row.moment in names]
    steps = [one.name for one in moments if one.kind == "step"]
    costs = [spent([row.call for row in rows if row.moment == step], run.prices) for step in steps]
    return spent([row.call for row in rows], run.prices), dearest(costs)


def allowance(run: TrainingRun) -> RemainingBudget:
    """Return what the run may still spend, by the calls that are stored."""
    if not is_limited(run.config.budget):
        return RemainingBudget()
    ledger = BudgetLedger().counted(spent_by(run))
    return remaining(run, ledger.left(run.config.budget, "", Spent()))


def remaining(run: TrainingRun, left: Left, role: Role = "target") -> RemainingBudget:
    """Return amounts as whoever asks the model of a role takes them."""
    price = run.prices.get(role)
    return RemainingBudget(
        calls=left.calls,
        tokens=left.tokens,
        # What nobody can count is not spent any further.
        usd=0.0 if left.usd is not None and price is None else left.usd,
        input_price=0.0 if price is None else price.input,
        output_price=0.0 if price is None else price.output,
    )


def spent_by(run: TrainingRun) -> Spent:
    """Return what the run has spent until now; where it has several targets, on all of them."""
    total = Spent()
    for one in one_for_each_target(run):
        total = total.plus(spent(one.usage.calls(one.ref.benchmark, one.account), one.prices))
    return total


def unaffordable(run: TrainingRun, rollouts: int) -> str:
    """Return why the budget has no room for so many rollouts of at least one call each; or empty.

    No rollouts need no room.
    """
    if not rollouts:
        return ""
    left = allowance(run)
    used_up = left.used_up()
    if used_up:
        return f"{used_up} is used up"
    if left.calls is not None and left.calls < rollouts:
        return f"budget.max_calls leaves {left.calls} calls, and {rollouts} rollouts are needed"
    return ""


def is_limited(budget: BudgetGroup) -> bool:
    """Return whether the budget has any limit."""
    return any(limit is not None for limit in (budget.max_calls, budget.max_tokens, budget.max_usd))
