"""The smallest gain that a gate can be expected to find on so many items, by simulation of the gate itself.

Of all worlds it is the one in which scores vary most: every answer is a coin's toss, of the candidate with a chance of
(1 + gain) / 2 and of the current skill with (1 - gain) / 2. Where many items are certain, smaller gains are found.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from skillopt_airflow.core.gate import judge
from skillopt_airflow.core.gate_policies import policy_of
from skillopt_airflow.core.gate_policies.policy import Evidence, FreshDraws, discordant
from skillopt_airflow.core.paired import PairedTable
from skillopt_airflow.core.training_groups import EvaluationGroup

POWER = 0.8
"""Share of candidates with the gain that are to be accepted."""
TRIALS = 200
MOST_ITEMS = 200
"""Items that are simulated; on more of them the smallest gain falls with the root of their number."""
STEPS = 200
"""Steps from no gain to one of 1, to which gains are found."""


@cache
def smallest_gain(rules: EvaluationGroup, groups: tuple[int, ...]) -> float | None:
    """Return the smallest gain of the mean that the gate finds with 80 % power; None if it finds none at all.

    Args:
        rules: say the policy, its level, and the draws of each item.
        groups: sizes of the items' groups, 1 for an item without one. Items of a group are tossed independently.
    """
    simulated = _first(groups, MOST_ITEMS)
    low, high = 0, STEPS
    if not simulated or not _finds(rules, simulated, 1.0):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _finds(rules, simulated, middle / STEPS) else (middle, high)
    return high / STEPS * math.sqrt(sum(simulated) / sum(groups))


def _first(groups: Sequence[int], items: int) -> tuple[int, ...]:
    """Return the first groups that together have at most so many items, the first one in any case."""
    found: list[int] = []
    total = 0
    for size in groups:
        total += size
        if found and total > items:
            break
        found.append(size)
    return tuple(found)


def _finds(rules: EvaluationGroup, sizes: Sequence[int], gain: float) -> bool:
    """Return whether enough candidates with the gain are accepted; the tosses are the same for every gain."""
    groups = {f"{group}-{place}": f"{group}" for group, size in enumerate(sizes) for place in range(size)}
    named = groups if len(groups) > len(sizes) else {}
    wanted, accepted = math.ceil(POWER * TRIALS), 0
    for trial in range(TRIALS):
        accepted += _accepted(rules, tuple(groups), named, gain, Random(trial))  # noqa: S311
        if accepted == wanted or accepted + TRIALS - trial - 1 < wanted:
            break
    return accepted == wanted


def _accepted(
    rules: EvaluationGroup, items: Sequence[str], groups: Mapping[str, str], gain: float, random: Random
) -> bool:
    changes = {item: _change(random, gain, rules.draws) for item in items}
    delta = math.fsum(changes.values()) / len(changes)
    table = PairedTable(wins=0, losses=0, ties=0, score=delta, other_score=0.0, delta=delta, low=-1.0, high=1.0)
    fresh = None
    if policy_of(rules).needs_fresh_draws:
        fresh = FreshDraws({item: _change(random, gain, 1) for item in discordant(changes)}, coverage=1.0)
    return judge(Evidence(table, changes, fresh=fresh, groups=groups), rules).action.accepted


def _change(random: Random, gain: float, draws: int) -> float:
    """Return the candidate's mean less the current skill's on one item."""
    candidate, current = (1 + gain) / 2, (1 - gain) / 2
    lead = 0
    for _ in range(draws):
        lead += random.random() < candidate
    for _ in range(draws):
        lead -= random.random() < current
    return lead / draws
