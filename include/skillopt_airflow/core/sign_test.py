"""A test on wins and losses alone: if a candidate changes nothing, the sign of each is a fair coin."""

from itertools import accumulate


def sign_test(wins: int, losses: int) -> float:
    """Return the one-sided p-value: the chance of at least so many wins if each outcome is a fair coin.

    Exact (McNemar's test in its binomial form); 1 without a win or loss.
    """
    outcomes = wins + losses
    # At least `wins` heads are as likely as at most `losses`, which are the subsets of at most so many outcomes.
    subsets = accumulate(range(losses), lambda count, k: count * (outcomes - k) // (k + 1), initial=1)
    return sum(subsets) / (1 << outcomes)
