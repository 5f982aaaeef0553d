"""Evidence that the mean of bounded differences is above 0, which may be looked at as often as one likes.

A bettor stakes a fixed share of the capital on every difference to come, at fair odds if their mean is 0: a difference
d multiplies the capital by 1 + share * d. If the mean is at most 0, the expected capital never exceeds 1, so it reaches
1/alpha with a chance of at most alpha, whenever one looks (Waudby-Smith and Ramdas 2020, arXiv:2010.09686). Only the
mean counts, not how the differences are distributed. Many bettors with different shares stand side by side, and their
average is the evidence.
"""

import math
from collections.abc import Iterable, Sequence

BETTORS = 50
SHARES = tuple(math.sqrt((place + 0.5) / BETTORS) for place in range(BETTORS))
"""Shares of their capital that the bettors stake: more large ones than small, who get on where differences are few."""


def log_evidence(capitals: Sequence[float]) -> float:
    """Return the logarithm of the bettors' average capital: an average of E-values is one."""
    return log_sum(capitals) - math.log(len(capitals))


def log_sum(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of what the logarithms are of, however large that is."""
    highest = max(logs)
    return highest + math.log(math.fsum(math.exp(one - highest) for one in logs))


def highest_capital(differences: Iterable[float], enough: float) -> float:
    """Return the highest average capital that the bettors had after any of the differences, or the first `enough`.

    It is at least 1, what they begin with. That independent differences from -1 to 1 whose mean is at most 0 ever bring
    it to c has a chance of at most 1/c (Ville 1939), if what order they come in tells nothing of them.
    """
    capitals, highest = [1.0] * BETTORS, 1.0
    for difference in differences:
        if difference:
            capitals = [capital * (1.0 + share * difference) for capital, share in zip(capitals, SHARES, strict=True)]
            highest = max(highest, math.fsum(capitals) / BETTORS)
        if highest >= enough:
            break
    return highest
