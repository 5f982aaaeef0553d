"""Tests on wins and losses alone: if a candidate changes nothing, the sign of each is a fair coin."""

import math
from itertools import accumulate


def sign_test(wins: int, losses: int) -> float:
    """Return the one-sided p-value: the chance of at least so many wins if each outcome is a fair coin.

    Exact (McNemar's test in its binomial form); 1 without a win or loss.
    """
    # At least `wins` heads are as likely as at most `losses`.
    return _subsets(wins + losses, losses) / (1 << wins + losses)


def e_value(wins: int, losses: int) -> float:
    """Return the evidence that wins are likelier than losses; values on independent items multiply.

    E = 2^(n+1) * the integral over th in [1/2, 1] of th^wins (1-th)^losses, with n = wins + losses: the likelihood
    ratio of a win rate above one half, averaged evenly, to a fair coin. Its mean is 1 if the candidate changes
    nothing, so it reaches 1/alpha with a chance of at most alpha, whenever one looks. Above the largest float it
    is the largest float.
    """
    numerator, denominator = _e_fraction(wins, losses)
    try:
        return numerator / denominator
    except OverflowError:
        return math.nextafter(math.inf, 0.0)


def log_e_value(wins: int, losses: int) -> float:
    """Return the natural logarithm of the E-value, which never overflows."""
    numerator, denominator = _e_fraction(wins, losses)
    return math.log(numerator) - math.log(denominator)


def _e_fraction(wins: int, losses: int) -> tuple[int, int]:
    # The integral is the Beta function B(wins+1, losses+1) = 1 / ((n+1) C(n, wins)) times the tail of its
    # distribution above 1/2, which is the chance of at most `wins` heads in n+1 tosses.
    tosses = wins + losses + 1
    return _subsets(tosses, wins), tosses * math.comb(wins + losses, wins)


def _subsets(size: int, most: int) -> int:
    """Count the subsets with at most so many elements."""
    return sum(accumulate(range(most), lambda count, k: count * (size - k) // (k + 1), initial=1))
