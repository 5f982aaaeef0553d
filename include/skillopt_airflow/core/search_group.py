"""The knobs of a search, in a benchmark whose tools search."""

from typing import Annotated

from pydantic import Field

from skillopt_airflow.core.config_group import Group, ObjectName, Positive

TRIES = 4
LONGEST_PAUSE = 20.0
"""Seconds between two tries."""


class SearchGroup(Group):
    """The server of the target's searches, and the limits of what comes back."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) of a search server, such as skillopt_search; its extra has the kind, searxng or
    brave. When unset, searches look through the documents that an item brings with it, and nothing leaves the host."""
    results: Annotated[int, Field(ge=1, le=20)] = 5
    """Results of one search."""
    page_chars: Positive = 12_000
    """Characters of a page that is opened; the rest is left out."""
    page_mb: Annotated[float, Field(gt=0.0, le=50.0)] = 5.0
    """Megabytes that a page may have, as it comes and unpacked; a larger one is not read."""
    seconds: Annotated[float, Field(gt=0.0)] = 20.0
    """Seconds that one try of a search, or a page with its redirects, may take."""

    @property
    def patience(self) -> float:
        """Seconds after which no answer can come."""
        return TRIES * (self.seconds + LONGEST_PAUSE)
