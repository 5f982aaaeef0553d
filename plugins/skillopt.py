"""The Airflow plugin: the reports of trainings, below /skillopt of the API server."""

from airflow.plugins_manager import AirflowPlugin

from include.pipeline.addresses import UI_PREFIX
from include.ui.reports import app


class SkillOptPlugin(AirflowPlugin):
    """Mounts the pages of include/ui."""

    name = "skillopt"
    fastapi_apps = [{"name": "skillopt", "app": app, "url_prefix": UI_PREFIX}]  # noqa: RUF012  declared so by Airflow
