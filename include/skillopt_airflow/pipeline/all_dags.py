"""Every DAG of every benchmark, for the DAG file of an Airflow that installed this package."""

from airflow.sdk import DAG

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.cleanup_dag import cleanup_dag
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.params import benchmark_config
from skillopt_airflow.pipeline.publishing import publish_dag, rollback_dag
from skillopt_airflow.pipeline.training import epoch_dag, epoch_end_dag, train_dag

FACTORIES = (train_dag, epoch_dag, epoch_end_dag, evaluate_dag, publish_dag, rollback_dag, regate_dag, cleanup_dag)


def dags() -> dict[str, DAG]:
    """Return the DAGs by id: `globals().update(dags())` hands them to Airflow."""
    configs = {name: benchmark_config(name) for name in benchmarks.names()}
    made = [factory(name, config) for name, config in configs.items() for factory in FACTORIES]
    return {dag.dag_id: dag for dag in made}
