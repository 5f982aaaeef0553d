"""Looks at the items that decide what is published: the level of each keeps all together within one."""

import math
import re
from collections.abc import Iterable

from pydantic import AwareDatetime, Field

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.types import JsonObject, Split, Value, canonical_json, sha256

FIRST_LOOK = 0.8
"""Share of alpha that the first look at some items has."""
MARK = 16
"""Digits of a record's hash that the ledger keeps."""
_NO_CONTENT = re.compile(r"(?:\\[a-z]|\W|_)+")
"""In JSON, escapes of whitespace among it."""


class Question(Value):
    """A comparison of two skills and its method; asked again about the same items it is the same look."""

    candidate: str
    """SHA-256 of the skill."""
    rival: str
    """SHA-256 of the skill to beat."""
    draws: int
    metric: str
    policy: str
    alpha: float
    """The level that all looks together are to keep."""
    settings: str = Field(default="", exclude_if=lambda settings: not settings)
    """Hash of the items, and of all else that makes rollouts new, or a score of them."""


class Look(Document):
    """One comparison on items of a split, entered before its result is known."""

    number: int = Field(ge=1)
    """One more than the highest number of the earlier looks at splits that share a record with this one."""
    split: Split
    items: int
    """Items that are looked at, which a limit may have chosen."""
    records: tuple[str, ...] = ()
    """Marks of the records of the whole split, before any limit. A look without marks counts for all records."""
    question: Question
    run: str
    publication: str
    """Name of the attempt to publish that asked first."""
    entered: AwareDatetime
    """UTC."""

    @property
    def level(self) -> float:
        """The level at which a policy with one judges."""
        return level_of(self.number, self.question.alpha)

    def __str__(self) -> str:
        return f"look {self.number} at these {self.items:,} items"


def level_of(number: int, alpha: float) -> float:
    """Return the level of a look (1-based): those of all looks, however many there will be, sum up to alpha.

    Most items are looked at once, so the first look has most of alpha. The others share the rest as 1, 1/4, 1/9 and so
    on (alpha spending: Lan and DeMets, Biometrika 70, 1983).
    """
    if number == 1:
        return FIRST_LOOK * alpha
    return (1 - FIRST_LOOK) * alpha * 6 / (math.pi * (number - 1)) ** 2


class WholeSplits(Document):
    """Marks of the records of a run's held-out splits, before `data.limit`."""

    splits: dict[Split, tuple[str, ...]]


def record_marks(records: Iterable[JsonObject]) -> tuple[str, ...]:
    """Return the sorted marks of records: hashes that no knob of a run changes.

    Only letters and digits count, in either case, so that whitespace and the format of the file make no difference.
    """
    texts = (_NO_CONTENT.sub("", canonical_json(record)).casefold() for record in records if record)
    return tuple(sorted({sha256(text)[:MARK] for text in texts}))
