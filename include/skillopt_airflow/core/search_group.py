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
    """Airflow connection (type http) of a search server, such as skillopt_search; its extra has the kind: searxng,
    brave or tavily. When unset, searches look through the documents that an item brings with it, and nothing leaves
    the host."""
    results: Annotated[int, Field(ge=1, le=20)] = 5
    """Results of one search."""
    page_chars: Positive = 12_000
    """Characters of a result's text, which the target reads when it opens the page; the rest is left out."""
    seconds: Annotated[float, Field(gt=0.0)] = 20.0
    """Seconds that one try of a search may take."""

    @property
    def patience(self) -> float:
        """Seconds after which no answer can come."""
        return TRIES * (self.seconds + LONGEST_PAUSE)
