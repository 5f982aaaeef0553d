"""One-sided tests of paired differences: if a candidate changes nothing, each difference has a random sign."""

from collections.abc import Collection
from typing import Any

FLIPS = 9_999
"""Random patterns of signs."""
SEED = 20_260_523
BLOCK = 4_000_000
"""Signs that are held in memory at the same time."""
ROUNDING = 1e-9
"""Relative difference of sizes, and of sums, that floats may round apart."""


def sign_flip_test(differences: Collection[float]) -> float:
    """Return the one-sided p-value: the chance of so large a sum if each difference has a random sign.

    Where all differences have one size it is the exact sign test (McNemar's in its binomial form). Else it is Fisher's
    permutation test with FLIPS random patterns, p = (1 + k) / (1 + FLIPS) for k sums as large as the observed one,
    which keeps its level for any number of patterns (Phipson and Smyth 2010). The patterns depend on nothing but the
    number of differences, so equal differences have equal p-values. 1 without a difference.
    """
    import numpy as np

    values = np.array([difference for difference in differences if difference], dtype=np.float64)
    if not values.size:
        return 1.0
    sizes = np.sort(np.abs(values))
    if sizes[-1] - sizes[0] <= ROUNDING * sizes[-1]:
        return float(sign_test((values > 0).sum(), values.size))
    least = values.sum() - ROUNDING * sizes.sum()
    random, as_large = np.random.default_rng(SEED), 0
    rows = max(1, BLOCK // values.size)
    for begin in range(0, FLIPS, rows):
        negative = random.integers(0, 2, (min(rows, FLIPS - begin), values.size), dtype=np.int8)
        as_large += int((sizes.sum() - 2 * (negative @ sizes) >= least).sum())
    return (1 + as_large) / (1 + FLIPS)


def sign_test(wins: Any, outcomes: Any) -> Any:
    """Return the chance of at least so many wins among the outcomes if each is a fair coin; of numbers or arrays."""
    from scipy.special import bdtrc

    return bdtrc(wins - 1.0, outcomes, 0.5)
