"""Airflow DAGs that publish and roll back: `publish_<benchmark>` and `rollback_<benchmark>` for every benchmark."""

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.graph import needed
from skillopt_airflow.pipeline.params import benchmark_config
from skillopt_airflow.pipeline.publishing import publish_dag, rollback_dag

for name in needed(benchmarks.names()):
    config = benchmark_config(name)
    for dag in (publish_dag(name, config), rollback_dag(name, config)):
        globals()[dag.dag_id] = dag
