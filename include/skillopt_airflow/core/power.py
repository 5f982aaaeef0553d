"""The smallest gain that a gate can be expected to find on so many items, by simulation of its test.

Of all worlds it is the one in which scores vary most: every answer is a coin's toss, of the candidate with a chance of
(1 + gain) / 2 and of the current skill with (1 - gain) / 2, and the items of a group share one toss. Where many items
are certain, or those of a group do not all hang together, smaller gains are found. An item's draws may all be alike, as
at temperature 0: then they tell no more than one.
"""

from functools import cache
from typing import TYPE_CHECKING

from skillopt_airflow.core.gate_policies import policy_of
from skillopt_airflow.core.permutation import sign_flip_test, sign_test
from skillopt_airflow.core.training_groups import EvaluationGroup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POWER = 0.8
"""Share of candidates with the gain that are to be accepted."""
TRIALS = 400
STEPS = 200
"""Steps from no gain to one of 1, to which gains are found."""
SEED = 48
AS_NORMAL = 20
"""Groups from which on the sum with random signs counts as normal where their differences have different sizes."""


def can_accept(rules: EvaluationGroup, groups: tuple[int, ...]) -> bool:
    """Return whether the gate accepts a candidate that wins every item; the arguments are those of `smallest_gain`."""
    return bool(groups) and (not policy_of(rules).has_level or sign_flip_test(groups) <= rules.gate_alpha)


@cache
def smallest_gain(rules: EvaluationGroup, groups: tuple[int, ...], alike: bool = False) -> float | None:
    """Return the smallest gain of the mean that the gate finds with 80 % power; None if it finds none at all.

    Args:
        rules: say the policy, its level, and the draws of each item.
        groups: sizes of the items' groups, 1 for an item without one.
        alike: whether all draws of an item are alike.
    """
    if not can_accept(rules, groups):
        return None
    low, high = 0, STEPS
    while high - low > 1:
        middle = (low + high) // 2
        found = _power(rules, groups, middle / STEPS, 1 if alike else rules.draws) >= POWER
        low, high = (low, middle) if found else (middle, high)
    return high / STEPS


def _power(rules: EvaluationGroup, groups: tuple[int, ...], gain: float, draws: int) -> float:
    """Return the share of candidates with the gain that the gate accepts."""
    import numpy as np

    random, accepted = np.random.default_rng(SEED), 0
    # A block of trials at a time, since there may be 100,000 groups.
    block = max(1, 2_000_000 // len(groups))
    for begin in range(0, TRIALS, block):
        shape = min(block, TRIALS - begin), len(groups)
        mine, theirs = (random.binomial(draws, chance, shape) for chance in ((1 + gain) / 2, (1 - gain) / 2))
        sums = np.array(groups) * (mine - theirs) / draws
        passed = sums.sum(axis=1) > 0
        if policy_of(rules).has_level:
            passed &= _p_values(sums) <= rules.gate_alpha
        accepted += int(passed.sum())
    return accepted / TRIALS


def _p_values(sums: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return the p-value of the sign-flip test of each row of differences."""
    import numpy as np
    from scipy.special import ndtr

    sizes = np.abs(sums)
    if len(np.unique(sizes[sizes > 0])) <= 1:
        return np.asarray(sign_test((sums > 0).sum(axis=1), (sums != 0).sum(axis=1)))
    if sums.shape[1] < AS_NORMAL:
        return np.array([sign_flip_test(row) for row in sums])
    spread = np.sqrt((sums * sums).sum(axis=1))
    return np.asarray(ndtr(-sums.sum(axis=1) / np.maximum(spread, 1e-300)))
