"""A run's spending: what it is by now, and the room in its budget for another step, and for its sandboxes."""

from skillopt_airflow.core.budget import Role, Spent, dearest, exceeded, spent
from skillopt_airflow.core.budget_ledger import BudgetLedger, Left
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.training.run import TrainingRun


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
    rows = [row for row in usage if row.moment in names or (not row.moment and row.step <= moment.step)]
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
    """Return what the run has spent until now."""
    return spent(run.usage.calls(run.ref.benchmark, run.account), run.prices)


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
