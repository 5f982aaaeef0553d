"""Exact one-sided tests of paired differences: if a candidate changes nothing, each has a random sign."""

import math
import statistics
from collections.abc import Collection
from itertools import accumulate

DENOMINATOR = 2520
"""Least common multiple of 1 to 10: differences of means of up to so many 0/1 draws are multiples of 1 / 2520."""
RESOLUTION = 60
"""Other differences are rounded to so many steps of the largest one, or a multiple, which leaves such steps exact."""
MEDIAN_STEPS = 10
"""The median one has at least so many steps, so that one large document does not round all others to nothing."""
MOST_STEPS = 6000
"""The largest has no more steps than this, whatever the median, or counting would take long. A difference below half a
step counts as zero: it's too small to change which of two sums is the larger."""
MOST_COUNTED = 1000
"""Of more differences the patterns are too many to count; by then their sums are as good as normal."""
ROUNDING = 1e-6
"""Share of a step that floats may be away from a multiple of it."""


def sign_test(wins: int, losses: int) -> float:
    """Return the one-sided p-value: the chance of at least that number of wins if each outcome is a fair coin.

    Exact (McNemar's test in its binomial form); 1 without a win or loss.
    """
    outcomes = wins + losses
    # At least `wins` heads are as likely as at most `losses`, which are the subsets of at most that number of outcomes.
    subsets = accumulate(range(losses), lambda count, k: count * (outcomes - k) // (k + 1), initial=1)
    return sum(subsets) / (1 << outcomes)


def sign_flip_test(differences: Collection[float]) -> float:
    """Return the one-sided p-value: the chance of so large a sum if each difference has a random sign.

    Exact, by counting the patterns of signs with each sum (Fisher's permutation test of paired differences; of
    differences that are all equally large it is the sign test). The steps hang on the sizes alone, which random signs
    do not change, so that rounding to them leaves the test exact. 1 without a difference. Where more than MOST_COUNTED
    are not equally large, it is the normal distribution's.
    """
    steps = _steps(differences)
    if not steps:
        return 1.0
    if len(set(map(abs, steps))) == 1:
        wins = sum(step > 0 for step in steps)
        return sign_test(wins, len(steps) - wins)
    if len(steps) > MOST_COUNTED:
        # The other sign of a difference takes two steps from the sum.
        above = (sum(steps) - 1) / math.sqrt(sum(step * step for step in steps))
        return math.erfc(above / math.sqrt(2)) / 2
    lost = -sum(step for step in steps if step < 0)
    return _patterns([abs(step) for step in steps], lost) / (1 << len(steps))


def _steps(differences: Collection[float]) -> list[int]:
    """Return the differences that are not 0 as whole numbers of steps."""
    fine = [difference * DENOMINATOR for difference in differences]
    if any(abs(value - round(value)) > ROUNDING for value in fine):
        sizes = [abs(value) for value in fine if value]
        largest = max(sizes)
        times = min(MEDIAN_STEPS * largest / statistics.median(sizes), MOST_STEPS) / RESOLUTION
        resolution = RESOLUTION * math.ceil(times)
        fine = [value / largest * resolution for value in fine]
    steps = [step for value in fine if (step := round(value))]
    unit = math.gcd(*steps)
    return [step // unit for step in steps]


def _patterns(sizes: list[int], most: int) -> int:
    """Count the patterns of signs in which the negative sizes add up to at most `most`."""
    # One number holds the counts of all sums, a digit each: no count reaches 2^len(sizes).
    bits = len(sizes) + 1
    counts, kept = 1, (1 << bits * (most + 1)) - 1
    for size in sorted(sizes):
        counts = (counts + (counts << bits * size)) & kept
    # The sum of a number's digits is its remainder by the highest digit.
    return counts % ((1 << bits) - 1)
