"""Airflow DAGs that keep the buckets small: `cleanup_<benchmark>` for every folder in benchmarks/."""

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.cleanup_dag import cleanup_dag
from skillopt_airflow.pipeline.graph import needed
from skillopt_airflow.pipeline.params import benchmark_config

for name in needed(benchmarks.names()):
    dag = cleanup_dag(name, benchmark_config(name))
    globals()[dag.dag_id] = dag
