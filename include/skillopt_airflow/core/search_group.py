"""The knobs of a search, in a benchmark whose tools search."""

from skillopt_airflow.core.config_group import Group, ObjectName

TRIES = 4
TRY_SECONDS = 20.0
LONGEST_PAUSE = 20.0
"""Seconds between two tries."""
SEARCH_PATIENCE = TRIES * (TRY_SECONDS + LONGEST_PAUSE)
"""Seconds after which no answer can come."""


class SearchGroup(Group):
    """The server of the target's searches."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) of a search server, such as skillopt_search; its extra has the kind: searxng,
    brave or tavily. When unset, searches look through the documents that an item brings with it, and nothing leaves
    the host."""
