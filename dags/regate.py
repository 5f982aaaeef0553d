"""Airflow DAGs that check champions every night: `regate_<benchmark>` for every folder in benchmarks/."""

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.graph import needed
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.params import benchmark_config

for name in needed(benchmarks.names()):
    dag = regate_dag(name, benchmark_config(name))
    globals()[dag.dag_id] = dag
