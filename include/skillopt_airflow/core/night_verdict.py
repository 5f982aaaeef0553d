"""The verdict on a deployed skill from nights on fresh items, by tests that allow looking every night."""

import math
from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from skillopt_airflow.core.sign_test import log_e_value
from skillopt_airflow.core.types import Value


class NightVerdict(StrEnum):
    """The verdict on the champion after a night."""

    KEEP = "keep"
    """It is better than the seed skill."""
    WATCH = "watch"
    """Nothing is certain."""
    DEMOTE = "demote"
    """It became worse than the champion before it."""
    STALE = "stale"
    """It became worse than the seed skill, so it does harm."""


class NightCounts(Value):
    """The champion against a rival on the items of one night."""

    wins: int = Field(default=0, ge=0)
    losses: int = Field(default=0, ge=0)


class Judgement(Value):
    """A verdict, and the evidence that it rests on: E-values as natural logarithms, None without that rival."""

    verdict: NightVerdict
    reason: str
    gain_on_seed: float
    decline_to_seed: float
    decline_to_previous: float | None
    threshold: float
    """An E-value must reach it: ln(1/alpha)."""


def judge_nights(
    against_seed: Sequence[NightCounts], against_previous: Sequence[NightCounts] | None, alpha: float
) -> Judgement:
    """Return the verdict after the last of the nights, which are in the order of their dates.

    Each of the three claims (better than the seed, worse than it, worse than the champion before) is made falsely
    with a chance of at most alpha over all nights together, whenever one looks. A decline may begin on any night.
    """
    gain, decline = log_gain(against_seed), log_decline(against_seed)
    demotion = None if against_previous is None else log_decline(against_previous)
    threshold, looked_at = -math.log(alpha), against_seed
    if against_previous is not None and demotion is not None and demotion >= threshold:
        verdict, said, found = NightVerdict.DEMOTE, "worse than the champion before it", demotion
        looked_at = against_previous
    elif decline >= threshold:
        verdict, said, found = NightVerdict.STALE, "worse than the seed skill", decline
    elif gain >= threshold:
        verdict, said, found = NightVerdict.KEEP, "better than the seed skill", gain
    else:
        verdict, said, found = NightVerdict.WATCH, "nothing certain: better than the seed skill", gain
    relation = "at least" if found >= threshold else "below"
    nights = "1 night" if len(looked_at) == 1 else f"{len(looked_at)} nights"
    return Judgement(
        verdict=verdict,
        reason=f"{said}, E = {_plain(found)} over {nights}, {relation} {_plain(threshold)}",
        gain_on_seed=gain,
        decline_to_seed=decline,
        decline_to_previous=demotion,
        threshold=threshold,
    )


def log_gain(nights: Sequence[NightCounts]) -> float:
    """Return the evidence that wins are likelier than losses: the E-value of all nights' items together."""
    return log_e_value(sum(night.wins for night in nights), sum(night.losses for night in nights))


def log_decline(nights: Sequence[NightCounts]) -> float:
    """Return the evidence that losses are likelier than wins from some night on.

    A weighted mean of the E-values that start at night 1, 2, ...: night k's weight is 1/(k(k+1)), and what is left of
    the weights stays on the nights to come, whose E-value is still 1. A mean of E-processes is one, so that good
    nights at the start cannot hide a decline, and the chance of ever reaching 1/alpha without one is at most alpha
    (Shin, Ramdas, Rinaldo 2022, arXiv:2203.03532, e-detectors with a prior on the change).
    """
    parts = [-math.log(len(nights) + 1)]
    wins = losses = 0
    for start in range(len(nights), 0, -1):
        wins, losses = wins + nights[start - 1].wins, losses + nights[start - 1].losses
        parts.append(log_e_value(losses, wins) - math.log(start * (start + 1)))
    highest = max(parts)
    return highest + math.log(math.fsum(math.exp(part - highest) for part in parts))


def _plain(log_value: float) -> str:
    """Show the E-value in few digits, or as a power of ten where it is far above the largest float."""
    digits = log_value / math.log(10)
    return f"{10**digits:.3g}" if digits < 6 else f"10^{digits:.0f}"
