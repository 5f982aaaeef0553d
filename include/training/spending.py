"""What a run has spent, and whether another step fits into its budget."""

from include.core.budget import dearest, exceeded, spent
from include.core.timeline import Moment
from include.training.run import TrainingRun


def why_stop(run: TrainingRun, moment: Moment) -> str:
    """Why the run stops after this moment: one more step like its dearest would pass a limit; empty if none would."""
    budget = run.config.budget
    limited = any(limit is not None for limit in (budget.max_calls, budget.max_tokens, budget.max_usd))
    if not limited or moment == run.timeline[-2]:
        return ""
    priced = run.record.prices
    # A gate that is decided again must not see what later steps spent.
    rows = [row for row in run.usage.read(run.ref.benchmark, run.ref.run) if row.step <= moment.step]
    steps = sorted({row.step for row in rows if row.step > 0})
    costs = [spent([row.call for row in rows if row.step == step], priced) for step in steps]
    return exceeded(spent([row.call for row in rows], priced), dearest(costs), budget)
