"""Airflow DAGs that train a skill: `train_<benchmark>` for every folder in benchmarks/, and its epochs."""

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.graph import needed
from skillopt_airflow.pipeline.params import benchmark_config
from skillopt_airflow.pipeline.training import epoch_dag, epoch_end_dag, train_dag

for name in needed(benchmarks.names()):
    config = benchmark_config(name)
    for dag in (train_dag(name, config), epoch_dag(name, config), epoch_end_dag(name, config)):
        globals()[dag.dag_id] = dag
