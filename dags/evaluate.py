"""Airflow DAGs that score a skill: `evaluate_<benchmark>` for every folder in benchmarks/."""

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.graph import needed
from skillopt_airflow.pipeline.params import benchmark_config

for name in needed(benchmarks.names()):
    dag = evaluate_dag(name, benchmark_config(name))
    globals()[dag.dag_id] = dag
