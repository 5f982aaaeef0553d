"""The smallest gain that a gate can be expected to find on so many items, by simulation of the gate itself.

Of all worlds it is the one in which scores vary most: every answer is a coin's toss, of the candidate with a chance of
(1 + gain) / 2 and of the current skill with (1 - gain) / 2, and the items of a group share one toss. Where many items
are certain, or those of a group do not all hang together, smaller gains are found.
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
MOST_GROUPS = 200
"""Groups that are simulated; with more of them the smallest gain falls with the root of their number."""
MOST_ITEMS = 400
"""Items that are simulated, where there are as many: of groups that share a toss only the ratios of sizes count."""
STEPS = 200
"""Steps from no gain to one of 1, to which gains are found."""


def can_accept(rules: EvaluationGroup, groups: tuple[int, ...]) -> bool:
    """Return whether the gate accepts a candidate that wins every item; the arguments are those of `smallest_gain`."""
    # A gain of 1 does, whatever is tossed.
    return bool(groups) and _accepted(rules, _items(groups), 1.0, Random(0))  # noqa: S311


@cache
def smallest_gain(rules: EvaluationGroup, groups: tuple[int, ...]) -> float | None:
    """Return the smallest gain of the mean that the gate finds with 80 % power; None if it finds none at all.

    Args:
        rules: say the policy, its level, and the draws of each item.
        groups: sizes of the items' groups, 1 for an item without one.
    """
    if not can_accept(rules, groups):
        return None
    simulated = _simulated(groups)
    low, high, items = 0, STEPS, _items(_scaled(simulated))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _finds(rules, items, middle / STEPS) else (middle, high)
    return high / STEPS * math.sqrt(_equivalent(simulated) / _equivalent(groups))


def _simulated(groups: Sequence[int]) -> list[int]:
    """Return sizes that stand for those of all groups, of MOST_GROUPS at most: small ones are put together."""
    least = sum(groups) / MOST_GROUPS if len(groups) > MOST_GROUPS else 0.0
    found = [0]
    for size in sorted(groups):
        if found[-1] and found[-1] >= least:
            found.append(0)
        found[-1] += size
    return found


def _scaled(groups: Sequence[int]) -> list[int]:
    """Return sizes in about the same ratios, with MOST_ITEMS together."""
    scale = min(1.0, MOST_ITEMS / sum(groups))
    return [max(1, round(size * scale)) for size in groups]


def _equivalent(groups: Sequence[int]) -> float:
    """Return the number of equally large groups over which a mean varies as much."""
    return sum(groups) ** 2 / sum(size * size for size in groups)


def _items(sizes: Sequence[int]) -> dict[str, str]:
    """Return items of such groups, with the group of each."""
    return {f"{group}-{place}": f"{group}" for group, size in enumerate(sizes) for place in range(size)}


def _finds(rules: EvaluationGroup, groups: Mapping[str, str], gain: float) -> bool:
    """Return whether enough candidates with the gain are accepted; the tosses are the same for every gain."""
    wanted, accepted = math.ceil(POWER * TRIALS), 0
    for trial in range(TRIALS):
        accepted += _accepted(rules, groups, gain, Random(trial))  # noqa: S311
        if accepted == wanted or accepted + TRIALS - trial - 1 < wanted:
            break
    return accepted == wanted


def _accepted(rules: EvaluationGroup, groups: Mapping[str, str], gain: float, random: Random) -> bool:
    changes = _changes(random, groups, gain, rules.draws)
    delta = math.fsum(changes.values()) / len(changes)
    table = PairedTable(wins=0, losses=0, ties=0, score=delta, other_score=0.0, delta=delta, low=-1.0, high=1.0)
    fresh = None
    if policy_of(rules).needs_fresh_draws:
        drawn = {item: groups[item] for item in discordant(changes)}
        fresh = FreshDraws(_changes(random, drawn, gain, 1), coverage=1.0)
    return judge(Evidence(table, changes, fresh=fresh, groups=groups), rules).action.accepted


def _changes(random: Random, groups: Mapping[str, str], gain: float, draws: int) -> dict[str, float]:
    """Return the change on each item, by its group, of which all items share a toss."""
    tosses = {group: _change(random, gain, draws) for group in dict.fromkeys(groups.values())}
    return {item: tosses[group] for item, group in groups.items()}


def _change(random: Random, gain: float, draws: int) -> float:
    """Return the candidate's mean less the current skill's on the items of one group."""
    candidate, current = (1 + gain) / 2, (1 - gain) / 2
    lead = 0
    for _ in range(draws):
        lead += random.random() < candidate
    for _ in range(draws):
        lead -= random.random() < current
    return lead / draws
