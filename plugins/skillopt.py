"""The Airflow plugin: the reports of trainings, below /skillopt of the API server and as a tab of their DAG runs."""

from airflow.plugins_manager import AirflowPlugin

from include.pipeline.addresses import UI_PREFIX
from include.ui.reports import REPORT_TAB, app


class SkillOptPlugin(AirflowPlugin):
    """Mounts the pages of include/ui."""

    name = "skillopt"
    fastapi_apps = [{"name": "skillopt", "app": app, "url_prefix": UI_PREFIX}]  # noqa: RUF012  declared so by Airflow
    external_views = [REPORT_TAB]  # noqa: RUF012  declared so by Airflow
