import json
from typing import Any

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.gateway.serve import ServeConfig
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.graph import dag_of, preflight, rollouts, speculation
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.tasks.addresses import run_url
from skillopt_airflow.pipeline.tasks.batch_rollouts import BatchRollouts
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from skillopt_airflow.sandbox.kubernetes.remote_folder import gateway_document
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.step import seed_and_final
from tests.training.in_process import Training, configured

SMALL = TrainConfig.from_layers({"train": {"num_epochs": 2, "steps_per_epoch": 1, "batch_size": 8}})


def stages(dag: Any, group: str) -> list[str]:
    """The group's tasks, each behind all that it waits for, without the one that runs beside them."""
    names = [task.task_id for task in dag.topological_sort() if not task.task_id.endswith(".speculate")]
    return [name.removeprefix(f"{group}.") for name in names if name.startswith(f"{group}.")]


def test_a_step_has_the_stages_of_the_algorithm() -> None:
    dag = epoch_dag("searchqa", SMALL)
    tasks = {task.task_id: task.upstream_task_ids for task in dag.tasks if task.task_id.startswith("step_01.")}
    assert tasks == {
        "step_01.rollout": {"plan"},
        "step_01.update": {"step_01.rollout"},
        "step_01.speculate": {"step_01.rollout"},
        "step_01.evaluate": {"step_01.update"},
        "step_01.gate": {"step_01.update", "step_01.evaluate", "step_01.speculate"},
    }


def test_an_evaluation_may_be_a_batch_job_and_a_step_s_batch_is_none() -> None:
    dag = epoch_dag("searchqa", TrainConfig.from_layers(SMALL.model_dump(), {"model": {"batch": True}}))
    assert stages(dag, "step_01") == ["rollout", "update", "evaluate", "gate"]
    assert dag.task_dict["step_01.rollout"].is_mapped
    assert isinstance(dag.task_dict["step_01.evaluate"], BatchRollouts)


@pytest.mark.parametrize(("batch", "operator"), [(False, "RolloutChunk"), (True, "BatchRollouts")])
def test_a_matrix_is_concluded_whatever_became_of_its_rollouts(batch: bool, operator: str) -> None:
    dag = evaluate_dag("searchqa", TrainConfig.from_layers({"model": {"batch": batch}}))
    assert [task.task_id for task in dag.topological_sort()] == ["prepare", "rollout", "conclude"]
    assert dag.task_dict["rollout"].is_mapped
    assert dag.task_dict["rollout"].task_type == operator
    # What was not prepared is not concluded.
    assert dag.task_dict["conclude"].trigger_rule == "all_done_min_one_success"


def test_an_epochs_end_compares_then_reflects() -> None:
    dag = epoch_dag("searchqa", SMALL)
    assert stages(dag, "slow_update") == ["compare_epochs", "rollout", "slow_update", "evaluate", "gate"]
    assert stages(dag, "meta_reflect") == ["meta_reflect", "evaluate", "gate"]
    for group in ("slow_update", "meta_reflect"):
        assert f"{group}.speculate" in dag.task_dict[f"{group}.gate"].upstream_task_ids
    several = epoch_dag("searchqa", TrainConfig.from_layers(SMALL.model_dump(), {"train": {"steps_per_epoch": 3}}))
    gates = {f"step_0{position}.gate" for position in (1, 2, 3)}
    # Behind every step, whichever of them the part has.
    assert several.task_dict["slow_update.compare_epochs"].upstream_task_ids == gates
    assert several.task_dict["slow_update.speculate"].upstream_task_ids == gates
    assert "slow_update.gate" in dag.task_dict["meta_reflect.meta_reflect"].upstream_task_ids


@pytest.mark.parametrize(("engine", "starting"), [("docker", 0), ("kubernetes", 300)])
def test_a_chunk_outlasts_its_items_when_each_hangs_in_a_sandbox_of_its_own(engine: str, starting: int) -> None:
    config = TrainConfig.from_layers({"sandbox": {"engine": engine, "timeout": 100, "items_per_container": 7}})
    with dag_of("chunks", "doc", "searchqa", config) as dag:
        rollouts(config, "rollout", {}, [])
    limit = dag.task_dict["rollout"].execution_timeout
    assert limit is not None
    assert limit.total_seconds() >= 7 * (100 + starting) + 100
    with dag_of("patient", "doc", "searchqa", config) as dag:
        rollouts(TrainConfig.from_layers({"sandbox": {"timeout": 1e12}}), "rollout", {}, [])
    assert dag.task_dict["rollout"].execution_timeout is not None


@pytest.mark.parametrize("items", [1, 7])
def test_a_task_outlasts_the_images_that_are_built_and_the_tests_that_judge(items: int) -> None:
    config = TrainConfig.from_layers({"sandbox": {"timeout": 100, "test_timeout": 50, "items_per_container": items}})
    with dag_of("repositories", "doc", "swebench", config) as dag:
        preflight(config, {})
        rollouts(config, "rollout", {}, [])
        speculation(config, {}, 1)
    batch = config.train.batch_size
    for task_id, most in (("preflight", 1), ("rollout", items), ("speculate", batch)):
        limit = dag.task_dict[task_id].execution_timeout
        assert limit is not None
        assert limit.total_seconds() >= most * (1800 + 100 + 50 + 240)


def test_tasks_that_need_an_engine_have_a_queue_of_their_own() -> None:
    config = TrainConfig.from_layers(SMALL.model_dump(), {"sandbox": {"queue": "engine"}})
    for dags, plain in ((config, False), (SMALL, True)):
        tasks = [*train_dag("searchqa", dags).tasks, *epoch_dag("searchqa", dags).tasks]
        tasks += evaluate_dag("searchqa", dags).tasks + regate_dag("searchqa", dags).tasks
        queued = {task.task_id for task in tasks if task.queue == "engine"}
        needing = {"prepare", "prepare_night", "preflight", "score_seed", "publication.measure", "step_01.rollout"}
        assert queued == set() if plain else needing <= queued
        assert not {"report", "finish", "conclude", "step_01.gate", "step_01.update", "publication.publish"} & queued


def test_approvals_name_who_may_approve() -> None:
    rules = {"publishing": {"approvers": ["ada", "grace"]}}
    approve = train_dag("searchqa", TrainConfig.from_layers(rules)).task_dict["publication.approve"]
    assert approve.assigned_users == [{"id": user, "name": user} for user in ("ada", "grace")]
    assert not train_dag("searchqa", SMALL).task_dict["publication.approve"].assigned_users


def test_tasks_that_ask_target_or_optimizer_have_one_pool() -> None:
    config = TrainConfig.from_layers(SMALL.model_dump(), {"sandbox": {"pool": "provider"}})
    tasks = epoch_dag("searchqa", config).tasks
    pooled = {task.task_id for task in tasks if task.pool == "provider"}
    assert {"step_01.update", "slow_update.slow_update", "meta_reflect.meta_reflect", "step_01.rollout"} < pooled
    assert not {"step_01.gate", "slow_update.compare_epochs"} & pooled
    assert {task.pool_slots for task in tasks} == {1}


KEY = "sk-of-the-connection"


@pytest.mark.nightly
def test_the_gateways_document_is_one_that_its_program_takes() -> None:
    training = Training.of(budget__max_calls=50)
    training.prepare()
    (ref, *_) = seed_and_final.seed_plan(training.run)
    work = ChunkWorkload(training.run, ref, "run")
    # Built again, because a copy with an update would keep the key as a plain string.
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


BASE = "AIRFLOW__API__BASE_URL"


def test_a_run_has_the_address_at_which_airflow_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/dags/train_searchqa/runs/manual__2026%3A1"
    for base, expected in (("https://airflow.corp/team/", f"https://airflow.corp/team{path}"), ("", path)):
        monkeypatch.setenv(BASE, base)
        assert run_url("train_searchqa", "manual__2026:1") == expected
