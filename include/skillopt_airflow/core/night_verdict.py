"""The verdict on a deployed skill from nights on fresh items, by tests that allow looking every night."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from skillopt_airflow.core.night_evidence import MEMORY, NONE, RECENT, NightMean, log_recent_rise, log_rise
from skillopt_airflow.core.types import Value

MONTH = 30
"""Nights in which at most a share alpha of the champions that did not decline is said to have declined."""


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
    DRIFT = "drift"
    """It scores below what was published with it, and no rival is better: look at the data and the model."""


class Judgement(Value):
    """A verdict, and the evidence that it rests on as natural logarithms; None where there is nothing to compare."""

    verdict: NightVerdict
    reason: str
    gain_on_seed: float
    """Over the last nights; see `log_recent_rise`. It must reach gain_threshold."""
    decline_to_seed: float
    """From some night on, as the other declines; see `log_rise`. They must reach threshold."""
    decline_to_previous: float | None
    decline_to_promise: float | None = None
    threshold: float
    """ln(30/alpha)."""
    gain_threshold: float | None = None
    """ln(1/alpha); None in what was stored as contract 1, where threshold was that."""


def judge_nights(
    against_seed: Sequence[NightMean],
    against_previous: Sequence[NightMean] | None,
    against_promise: Sequence[NightMean] | None,
    alpha: float,
    recent: int = RECENT,
) -> Judgement:
    """Return the verdict after the last of the nights, which are in the order of their arrival.

    Each decline is claimed falsely within the first 30 nights with a chance of at most alpha, and later once in
    30/alpha nights in the mean. A decline may begin on any night. That it is better than the seed is claimed falsely on
    a share of at most alpha of the nights.

    Args:
        against_seed: the champion's score less the seed's.
        against_previous: less that of the champion before it; None without one.
        against_promise: less what was promised; None if nothing was.
        alpha: `regate.alpha`.
        recent: how many of the last nights against the seed count for a gain.
    """
    gain, decline = log_recent_rise(against_seed, recent), _log_decline(against_seed)
    demotion = None if against_previous is None else _log_decline(against_previous)
    drift = None if against_promise is None else _log_decline(against_promise)
    threshold, enough = math.log(MONTH / alpha), -math.log(alpha)
    previous, promise = _remembered(against_previous or ()), _remembered(against_promise or ())
    better = _Claim(NightVerdict.KEEP, "better than the seed skill", gain, enough, min(len(against_seed), recent))
    claims = (
        _Claim(NightVerdict.DEMOTE, "worse than the champion before it", demotion, threshold, previous),
        _Claim(NightVerdict.STALE, "worse than the seed skill", decline, threshold, _remembered(against_seed)),
        _Claim(NightVerdict.DRIFT, "below its published score, and no rival is better", drift, threshold, promise),
        better,
    )
    uncertain = better._replace(verdict=NightVerdict.WATCH, said=f"nothing certain: {better.said}")
    claim = next((claim for claim in claims if claim.holds), uncertain)
    return Judgement(
        verdict=claim.verdict,
        reason=claim.reason,
        gain_on_seed=gain,
        decline_to_seed=decline,
        decline_to_previous=demotion,
        decline_to_promise=drift,
        threshold=threshold,
        gain_threshold=enough,
    )


class _Claim(NamedTuple):
    """A statement about the champion, and the evidence for it."""

    verdict: NightVerdict
    said: str
    evidence: float | None
    threshold: float
    nights: int

    @property
    def holds(self) -> bool:
        return self.evidence is not None and self.evidence >= self.threshold

    @property
    def reason(self) -> str:
        """Return the claim with its evidence, and what it would take."""
        if self.evidence is None:
            return self.said
        relation = "at least" if self.holds else "below"
        nights = "1 night" if self.nights == 1 else f"{self.nights} nights"
        evidence, threshold = plain_evidence(self.evidence), plain_evidence(self.threshold)
        return f"{self.said}, E = {evidence} over {nights}, {relation} {threshold}"


def _log_decline(nights: Sequence[NightMean]) -> float:
    return log_rise([night.reversed for night in nights])


def _remembered(nights: Sequence[NightMean]) -> int:
    return min(len(nights), MEMORY)


def plain_evidence(log_value: float) -> str:
    """Show the evidence in three digits, or as a power of ten where it may be far above the largest float.

    It is rounded down: what is below a limit reads as below it.
    """
    if log_value <= math.log(NONE):
        return "0"
    digits = log_value / math.log(10)
    if digits >= 6:
        return f"10^{math.floor(digits + 1e-9)}"
    step = 10.0 ** (math.floor(digits + 1e-9) - 2)
    return f"{math.floor(10**digits / step + 1e-9) * step:,.6g}"
