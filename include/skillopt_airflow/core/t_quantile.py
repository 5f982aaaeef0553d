"""Student's t distribution: quantiles and probabilities."""

import math
from statistics import NormalDist

PRECISION = 1e-12


def two_sided_quantile(confidence: float, degrees: int) -> float:
    """Return the t with P(|T| <= t) = confidence, for confidence in (0, 1) and at least 1 degree of freedom.

    Newton's method on the probability. It starts at the normal quantile, which lies below; as the probability is
    concave in t > 0, each step then stays below the solution too, and none overshoots.
    """
    t = NormalDist().inv_cdf((1 + confidence) / 2)
    while (step := (confidence - _within(t, degrees)) / (2 * _density(t, degrees))) > PRECISION * t:
        t += step
    return t


def probability_below(t: float, degrees: int) -> float:
    """Return P(T <= t) for at least 1 degree of freedom; rounding leaves nothing of it far below 0."""
    return (1 + math.copysign(_within(abs(t), degrees), t)) / 2


def _within(t: float, degrees: int) -> float:
    """Return P(|T| <= t), exact for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _density(t: float, degrees: int) -> float:
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    return math.exp(scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))
