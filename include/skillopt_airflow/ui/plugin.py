"""The Airflow plugin: pages below /skillopt, in Airflow's navigation and as tabs of DAG runs."""

from airflow.plugins_manager import AirflowPlugin

import skillopt_airflow.ui.skill_page  # noqa: F401  for its route
from skillopt_airflow.pipeline.tasks.addresses import UI_PREFIX
from skillopt_airflow.ui.pages import app
from skillopt_airflow.ui.reports import QUALITY_TAB, REPORT_TAB
from skillopt_airflow.ui.rollout_list import ROLLOUTS_TAB
from skillopt_airflow.ui.skill_page import SKILLS_VIEW


class SkillOptPlugin(AirflowPlugin):
    """Registered by plugins/skillopt.py."""

    name = "skillopt"
    fastapi_apps = [{"name": "skillopt", "app": app, "url_prefix": UI_PREFIX}]  # noqa: RUF012  as in AirflowPlugin
    external_views = [REPORT_TAB, QUALITY_TAB, ROLLOUTS_TAB, SKILLS_VIEW]  # noqa: RUF012  as in AirflowPlugin
