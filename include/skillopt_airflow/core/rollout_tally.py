"""The outcome of many rollouts in numbers: with a score, failed and why, cut off."""

from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import Field

from skillopt_airflow.core.failure_reasons import Ended, FailureReason
from skillopt_airflow.core.types import Status, Value

TOLERATED_CUTS = 0.05
"""Share of the answers above which cut or empty ones make scores doubtful."""
EMPTY_ADVICE = (
    "If the server separates the reasoning (vLLM: --reasoning-parser), choose the parser of this model. If the "
    "reasoning uses up model.max_tokens, raise it or lower model.reasoning_effort"
)
"""What to do about a target whose answers are empty."""


class RolloutTally(Value):
    """Outcomes of the rollouts that some work consists of; those without any outcome were not needed."""

    planned: int = Field(ge=0)
    scored: int = Field(ge=0)
    truncated: int = Field(ge=0)
    """Scored ones whose answer was cut off."""
    empty: int = Field(default=0, ge=0)
    """Scored ones whose answer was empty."""
    failures: dict[Status, int]
    reason: FailureReason | None
    """The most frequent reason of the failures."""

    @classmethod
    def of(cls, rollouts: Iterable[Ended], planned: int) -> Self:
        """Count the outcomes, one a rollout, of so many rollouts."""
        ended = list(rollouts)
        statuses = Counter(one.status for one in ended)
        return cls.model_validate(
            {
                "planned": planned,
                "scored": sum(count for status, count in statuses.items() if status.scored),
                "truncated": statuses[Status.TRUNCATED],
                "empty": statuses[Status.EMPTY],
                "failures": {status: count for status, count in sorted(statuses.items()) if not status.scored},
                "reason": FailureReason.of(ended, planned),
            }
        )

    @property
    def coverage(self) -> float:
        """Share of the rollouts that have a score; 1 if there are none."""
        return self.scored / self.planned if self.planned else 1.0

    @property
    def cuts(self) -> str:
        """The warning that too many answers were cut off or empty; empty if few were."""
        cut = "were cut off at the limit of tokens and scored by what they hold; raise model.max_tokens"
        kinds = ((self.truncated, cut), (self.empty, f"were empty, and scored as such. {EMPTY_ADVICE}"))
        of = self.scored
        many = [(count, words) for count, words in kinds if count > TOLERATED_CUTS * of]
        return "; ".join(f"{count} of {of} answers ({count / of:.0%}) {words}" for count, words in many)

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {status}" for status, count in self.failures.items())
        words = (
            f"{self.truncated} of them cut off" if self.truncated else "",
            f"{self.empty} of them empty" if self.empty else "",
            failed and f"{failed} without a score",
        )
        return "; ".join([f"{self.scored} of {self.planned} rollouts have a score", *filter(None, words)])
