"""Airflow DAGs that check champions every night: `regate_<benchmark>` for every folder in benchmarks/."""

import benchmarks
from include.pipeline.params import benchmark_config
from include.pipeline.regate import regate_dag

for name in benchmarks.names():
    dag = regate_dag(name, benchmark_config(name))
    globals()[dag.dag_id] = dag
