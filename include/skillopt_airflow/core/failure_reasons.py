"""Outcomes of many rollouts: in numbers, the most frequent failure in one sentence, and which failures pass."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from pydantic import Field

from skillopt_airflow.core.types import RolloutResult, Status, Trajectory, Value

MAX_ERROR_CHARS = 300
MAX_ID_CHARS = 80
_WORD = re.compile(r"[\w-]+(?:[.:]\d[\w-]*)*")
"""A word, a number with its decimals, a time of day or an address."""

Ended = Trajectory | RolloutResult
"""A rollout that has ended, as a trajectory or without what was said."""


class FailureReason(Value):
    """The most frequent error of some items; its text is the sentence for the user."""

    status: Status
    error: str
    """One line without control characters, as the item has it; empty if no failure of this kind has words."""
    count: int = Field(ge=1)
    """Items that failed for this reason."""
    items: int = Field(ge=1)
    """Items that were looked at, with those that did not fail."""
    item_id: str
    """An item that failed so."""

    @classmethod
    def of(cls, rollouts: Iterable[Ended], items: int) -> Self | None:
        """Find the most frequent reason among the failed rollouts, one an item, of so many items.

        Errors that differ only in numbers, ids, addresses and times count as one, and the most frequent wording
        stands for them. The order of the rollouts does not matter. None if none failed.
        """
        alike: defaultdict[tuple[Status, str], Counter[str]] = defaultdict(Counter)
        example: dict[tuple[Status, str], str] = {}
        for one in rollouts:
            if one.status.scored:
                continue
            error = _cut(one.error, MAX_ERROR_CHARS)
            alike[one.status, _kind(one)][error] += 1
            example[one.status, error] = min(one.item_id, example.get((one.status, error), one.item_id))
        if not alike:
            return None
        (status, _), wordings = min(alike.items(), key=lambda entry: (-entry[1].total(), entry[0]))
        error = min(wordings, key=lambda wording: (-wordings[wording], wording))
        count, item_id = wordings.total(), _cut(example[status, error], MAX_ID_CHARS)
        return cls(status=status, error=error, count=count, items=items, item_id=item_id)

    def __str__(self) -> str:
        why = f"{self.status}: {self.error}" if self.error else str(self.status)
        return f"{self.count} of {self.items} items: {why} (for example item {self.item_id})"


def too_few(coverage: float, wanted: float, reason: FailureReason | None) -> str:
    """Return the sentence for the user where this share of the items has a score, and more would be needed."""
    because = f"; {reason}" if reason else ""
    return f"only {share(coverage)} of the items have a score ({share(wanted)} are wanted){because}"


def share(part: float) -> str:
    """Return a share of items in percent, rounded down: 299 of 300 are not 100 %."""
    return f"{math.floor(1000 * part + 1e-9) / 10:g}%"


def _kind(rollout: Ended) -> str:
    """Return the error without what belongs to one item: its id, and every word that has a digit."""
    words = re.sub(rf"(?<!\w){re.escape(rollout.item_id)}(?!\w)", "0", rollout.error)
    return " ".join(_WORD.sub(lambda word: "0" if any(map(str.isdigit, word.group())) else word.group(), words).split())


def _cut(text: str, limit: int) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= limit else f"{line[: limit - 4].rstrip()} ..."


UNREADABLE = "unreadable"
"""In the place of a status, where what came is no answer."""
FIRST_ITEMS = 8
"""Items of a chunk after which the others are not tried, if all of these failed alike."""
ADDRESS = "its host, which for most servers ends in /v1"
ADVICE: Mapping[int, str] = {
    400: "correct the name of its model, or the settings under model.* that this server does not take",
    401: "correct its password",
    402: "its account has to be topped up",
    403: "correct its password, or give its key the right to use the model",
    404: f"correct the name of its model, or {ADDRESS}",
    405: f"correct {ADDRESS}",
    422: "correct the name of its model, or the settings under model.* that this server does not take",
}
"""Advice about a connection by its server's answer, for each answer that refuses the same request every time."""


def may_pass(status: int) -> bool:
    """Return whether the same request may be answered later: a time-out, an overload, a fault of the server."""
    return status in (408, 409, 429) or status >= 500


def advice(status: int) -> str:
    """Return what to do with a connection after this status; of 0 or 200, what came was no answer."""
    return ADVICE.get(status, f"correct {ADDRESS}: no model server answers there")


def lasting_error(status: int | None) -> str:
    """Return a trajectory's mark of an error that would come again; empty for any other."""
    return str(status) if status in ADVICE else ""


def hopeless(first: Sequence[Trajectory], items: int) -> FailureReason | None:
    """Return why a chunk of so many items is given up: the first of them, or all if they are few, failed alike.

    Only errors count that no retry mends; None as long as there is hope.
    """
    wanted = min(FIRST_ITEMS, items)
    looked_at = first[:wanted]
    kinds = {one.lasting_error for one in looked_at}
    if len(looked_at) < wanted or len(kinds) != 1 or kinds == {""}:
        return None
    return FailureReason.of(looked_at, wanted)


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
