"""Airflow's import error for benchmarks that cannot be read, apart from the DAGs of those that can."""

from skillopt_airflow.pipeline.all_dags import check_benchmarks

check_benchmarks()
