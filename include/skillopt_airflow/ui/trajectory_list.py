"""The list of rollouts that a page shows: a page of those that pass the filters, and what can be filtered by."""

import math
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.types import Status
from skillopt_airflow.ui.trajectory_query import TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Subject

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.rollout_browser import Listing
    from skillopt_airflow.store.rollout_filter import Counts, ListedRollout
    from skillopt_airflow.store.rollout_table import RolloutKey

PAGE = 50
"""Rows of a page."""
MOST_SEARCHED = 64 * 1024 * 1024
"""Bytes of texts that a search in what was said reads, before compression."""
MOST_IN_ADDRESS = 200
"""Characters of an item's id, or of a type of task, that stand in an address."""
MOST_TYPES = 500
"""Types of task that can be chosen."""


class Found(NamedTuple):
    """The rollouts that pass the filters."""

    rows: "pa.Table"
    places: "pa.Array"
    """Of those that pass, in the order of the page."""
    unsearched: int
    """Rollouts that pass the other filters and were not searched for the text."""


class RolloutList(NamedTuple):
    """A page of the list."""

    rows: "list[tuple[ListedRollout, str]]"
    """Each with the address of its page."""
    first: int
    """Number of the first row among those that pass the filters, from 1."""
    shown: int
    """Rollouts that pass the filters."""
    page: int
    last: int
    counts: "Counts"
    """Of all rollouts, whatever the filters."""
    types: list[str]
    unsearched: int


def found(subject: Subject, asked: TrajectoryQuery) -> Found:
    """Return the rollouts of a subject that pass the filters.

    Raises:
        SkillOptError: they cannot be read.
    """
    from skillopt_airflow.store import rollout_filter as filters
    from skillopt_airflow.store.rollout_browser import RolloutBrowser

    if subject.key is None:
        raise ValueError("nothing was rolled out")
    browser, rules = RolloutBrowser(subject.store, subject.prefix), subject.rules

    def scored(listing: "Listing") -> "pa.Table":
        return filters.scored_by(listing.rows, rules.gate_metric, rules.gate_mixed_weight)

    def listing_of(key: "RolloutKey") -> "Listing":
        return browser.listing(key, subject.run, subject.items, alone=subject.alone)

    listing = listing_of(subject.key)
    other = None if subject.other is None else scored(listing_of(subject.other))
    rows = filters.beside(filters.typed_by(scored(listing), subject.types), other)
    said = asked.text if asked.within == "said" else ""
    status = Status(asked.status) if asked.status else None
    text = "" if said else asked.text
    places, unsearched = filters.filtered(rows, asked.show, status, asked.task_type, text), 0
    if said:
        having = browser.saying(listing, places, said, MOST_SEARCHED)
        places, unsearched = having.places, len(places) - having.searched
    places = filters.sorted_by(rows, places, asked.sort, descending=asked.order == "down")
    return Found(rows, places, unsearched)


def listed(subject: Subject, asked: TrajectoryQuery) -> RolloutList:
    """Return the page that is asked for, or the last one where there are fewer; raise as `found`."""
    from skillopt_airflow.store import rollout_filter as filters

    rows, places, unsearched = found(subject, asked)
    last = max(1, math.ceil(len(places) / PAGE))
    page = min(asked.page, last)
    start = (page - 1) * PAGE
    shown = filters.page(rows, places.slice(start, PAGE))
    return RolloutList(
        rows=[(row, address(asked, row, start + number)) for number, row in enumerate(shown, start=1)],
        first=start + 1,
        shown=len(places),
        page=page,
        last=last,
        counts=filters.counts(rows),
        types=[name for name in filters.task_types(rows) if len(name) <= MOST_IN_ADDRESS][:MOST_TYPES],
        unsearched=unsearched,
    )


def at_place(subject: Subject, asked: TrajectoryQuery) -> "tuple[ListedRollout, int] | None":
    """Return the rollout at a place of the filtered list and its place, the last one where there are fewer.

    None where no rollout passes the filters; raises as `found`.
    """
    from skillopt_airflow.store import rollout_filter as filters

    rows, places, _ = found(subject, asked)
    place = min(asked.place, len(places))
    return None if place < 1 else (filters.page(rows, places.slice(place - 1, 1))[0], place)


def address(asked: TrajectoryQuery, row: "ListedRollout", place: int) -> str:
    """Return the address of a rollout's page; an id that is long, or empty, is left out, since the mark tells it."""
    item_id = row.item_id if len(row.item_id) <= MOST_IN_ADDRESS else ""
    return asked.address(item=item_id, mark=row.mark, place=place)
