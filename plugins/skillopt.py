"""Airflow's UI gets the project's pages from here; a copy of this file belongs in Airflow's plugins folder."""

from skillopt_airflow.ui.plugin import SkillOptPlugin  # noqa: F401
