"""SkillOpt's DAGs: a file in which the word airflow occurs, or Airflow passes it over."""

from skillopt_airflow.pipeline.all_dags import dags

globals().update(dags())
