"""Looks at the items that decide what is published: the level of each keeps all together within one."""

import math
import re
from collections import Counter
from collections.abc import Iterable

from pydantic import AwareDatetime, Field

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.types import Item, Split, Value, canonical_json, sha256

FIRST_LOOK = 0.8
"""Share of alpha that the first look at some items has."""
MARK = 16
"""Digits of an item's hash that the ledger keeps."""
_NO_CONTENT = re.compile(r"(?:\\[a-z]|\W|_)+")
"""In JSON, escapes of whitespace among it."""


class Question(Value):
    """A comparison of two skills and its method; asked again about the same rollouts it is the same look."""

    candidate: str
    """SHA-256 of the skill."""
    rival: str
    """SHA-256 of the skill to beat."""
    draws: int
    metric: str
    policy: str
    alpha: float
    """The level that all looks together are to keep."""
    settings: str
    """Hash of the items, and of all else that makes rollouts new, or a score of them."""


class Look(Document):
    """One comparison on items of a split, entered before its result is known."""

    number: int = Field(ge=1)
    """One more than the most earlier looks that one of the items had."""
    split: Split
    items: int
    """Items that are looked at."""
    marks: tuple[str, ...]
    """Marks of these items."""
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


def next_number(looks: Iterable[Look], marks: Iterable[str]) -> int:
    """Return the number of the next look at items with these marks: one more than the most that one of them had."""
    had = Counter(mark for look in looks for mark in look.marks)
    return 1 + max((had[mark] for mark in marks), default=0)


def marks_of(items: Iterable[Item]) -> tuple[str, ...]:
    """Return the sorted marks of items."""
    return tuple(sorted({item_mark(item) for item in items}))


def item_mark(item: Item) -> str:
    """Return a hash of what an item asks, whatever its id, its place and the knobs of a run.

    Only letters and digits count, in either case, so that whitespace and the format of the file make no difference.
    """
    asked = {name: value for name, value in item.public.items() if value != item.id}
    text = canonical_json([asked, [file.sha256 for file in item.files]])
    return sha256(_NO_CONTENT.sub("", text).casefold())[:MARK]
