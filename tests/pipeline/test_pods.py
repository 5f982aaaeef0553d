"""Pods as the engine: what the graph has, and what a pod's gateway is told."""

import json

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from skillopt_airflow.gateway.serve import ServeConfig
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from skillopt_airflow.sandbox.kubernetes.remote_folder import gateway_document
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.step import seed_and_final
from tests.training.in_process import Training, configured

KEY = "sk-of-the-connection"


@pytest.mark.nightly
def test_the_gateways_document_is_one_that_its_program_takes() -> None:
    training = Training.of(budget__max_calls=50)
    training.prepare()
    (ref, *_) = seed_and_final.seed_plan(training.run)
    work = ChunkWorkload(training.run, ref, "run")
    # Built anew: a copy with an update would keep the key as a plain text.
    work.upstream = type(work.upstream).model_validate(work.upstream.model_dump() | {"api_key": KEY})

    with work.allotted(2) as allotment:
        document = json.loads(json.dumps(gateway_document(work, allotment.budget, 2)))

    served = ServeConfig.model_validate(document)
    assert served.upstream.api_key.get_secret_value() == KEY
    assert served.stage == "seed"
    # Of two pods, each gets half of what all items can take twice.
    assert served.allowance.calls == min(50, 2 * len(work.items)) // 2
    assert served.share == work.concurrency // 2


def test_the_graph_with_pods_and_batch_jobs_is_one_that_airflow_can_store() -> None:
    config = configured("searchqa", {"sandbox.engine": "kubernetes", "model.batch": True})
    for make in (train_dag, epoch_dag, evaluate_dag):
        dag = make("searchqa", config)
        stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
        assert set(stored.task_dict) == set(dag.task_dict)
