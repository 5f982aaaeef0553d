"""The settings of a run that say what its searches find."""

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject


def search_settings(config: TrainConfig, created: str) -> JsonObject:
    """Return what a rollout depends on where its run searches the web: nothing in a run that does not.

    Args:
        config: the run's configuration.
        created: when the run began, in ISO 8601.
    """
    if config.search.conn_id is None:
        return {}
    return {"search": config.search.model_dump(mode="json"), "search_day": search_day(created)}


def search_day(created: str) -> str:
    """Return the day of a run's searches: that of its beginning, so that all its candidates find the same."""
    return created[: len("2026-01-31")]
