"""The verdict on a deployed skill from nights on fresh items, by tests that allow looking every night."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from skillopt_airflow.core.night_evidence import RECENT, NightMean, alarm_height, decline, gain
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
    DRIFT = "drift"
    """It scores below what was published with it, and no rival is better: look at the data and the model."""


class Judgement(Value):
    """A verdict and the evidence for it; None where there is nothing to compare."""

    verdict: NightVerdict
    reason: str
    gain_on_seed: float | None
    """p-value of the last nights, see `gain`; at most alpha of a champion that is better."""
    decline_to_seed: float
    """Height of the chart, see `decline`, as the other declines; it reaches the alarm of a champion that declined."""
    decline_to_previous: float | None
    decline_to_promise: float | None
    alarm: float
    alpha: float


def judge_nights(
    against_seed: Sequence[NightMean],
    against_previous: Sequence[NightMean] | None,
    against_promise: Sequence[NightMean] | None,
    alpha: float,
    recent: int = RECENT,
) -> Judgement:
    """Return the verdict after the last of the nights, which are in the order of their arrival.

    Each decline is claimed falsely within 30 nights with a chance of at most alpha. A decline may begin on any night.
    A gain on the seed is claimed falsely on a share of at most alpha of the nights.

    Args:
        against_seed: the champion's score less the seed's.
        against_previous: less that of the champion before it; None without one.
        against_promise: less what was promised; None if nothing was.
        alpha: `regate.alpha`.
        recent: how many of the last nights against the seed count for a gain.
    """
    better, alarm = gain(against_seed, recent), alarm_height(alpha)
    to_seed = decline(against_seed)
    to_previous = None if against_previous is None else decline(against_previous)
    to_promise = None if against_promise is None else decline(against_promise)
    claims = (
        _Claim(NightVerdict.DEMOTE, "worse than the champion before it", to_previous),
        _Claim(NightVerdict.STALE, "worse than the seed skill", to_seed),
        _Claim(NightVerdict.DRIFT, "below its published score, and no rival is better", to_promise),
    )
    claim = next((one for one in claims if one.height is not None and one.height >= alarm), None)
    nights = min(len(against_seed), recent)
    if claim is not None:
        verdict, reason = claim.verdict, f"{claim.what}, CUSUM {claim.height:.1f}, at least {alarm:.1f}"
    elif better is not None and better <= alpha:
        verdict, reason = NightVerdict.KEEP, f"better than the seed skill, p = {better:.2g} over {nights} nights"
    else:
        p = "no two nights yet" if better is None else f"p = {better:.2g} over {nights} nights, above {alpha:g}"
        verdict, reason = NightVerdict.WATCH, f"nothing certain: better than the seed skill, {p}"
    return Judgement(
        verdict=verdict,
        reason=reason,
        gain_on_seed=better,
        decline_to_seed=to_seed,
        decline_to_previous=to_previous,
        decline_to_promise=to_promise,
        alarm=alarm,
        alpha=alpha,
    )


class _Claim(NamedTuple):
    """A decline of the champion, and the height of its chart; None where there is nothing to compare."""

    verdict: NightVerdict
    what: str
    height: float | None
