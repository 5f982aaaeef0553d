"""A stage as a batch job: Airflow's real operator and trigger against the stand-in's batch API and a real S3 server."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.ai.batch.openai import OpenAIBatchAdapter
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from local.served import served
from local.standin import chat_wire as chat
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError, ModelError
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.pipeline.tasks.batch_rollouts import BatchRollouts, check_batch
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.report.history import RunRollouts
from skillopt_airflow.training.run import timing
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.step import seed_and_final
from tests.batch_server import BatchServer
from tests.store.conftest import make_client, s3_endpoint
from tests.training.in_process import Training, configured

pytestmark = pytest.mark.slow

__all__ = ["s3_endpoint"]

BUCKET = "skillopt"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    with served(BatchServer("127.0.0.1", 0)) as server:
        connection = {"conn_type": "pydanticai", "host": server.base_url, "password": "key"}
        extra = {"extra": {"model": "openai:stand-in-target"}}
        monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_TARGET", json.dumps(connection | extra))
        yield server


@pytest.fixture
def run(s3_endpoint: str, server: BatchServer, monkeypatch: pytest.MonkeyPatch, request: Any) -> TrainingRun:
    """A run that is prepared, with the batch mode on."""
    uri = f"aws://test:test@/?region_name=us-east-1&endpoint_url={quote(s3_endpoint, safe='')}"
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_S3", uri)
    client = make_client(s3_endpoint)
    client.create_bucket(Bucket=BUCKET)
    overrides = {"model.batch": True, "model.target": "openai:stand-in-target", "evaluation.val_limit": 10}
    overrides["sandbox.items_per_container"] = 3
    # The sample's own rollouts are shared by all runs, so each test has settings of its own.
    overrides["model.max_tokens"] = 100 + abs(hash(request.node.name)) % 10_000
    training = Training(configured("searchqa", overrides), name=request.node.name, store=ObjectStore(client, BUCKET))  # type: ignore[arg-type]
    training.prepare()
    return training.run


@pytest.fixture
def pages(run: TrainingRun, request: Any) -> TrainingRun:
    """A run on the sample of scanned pages, in the same bucket."""
    overrides = {"model.batch": True, "model.target": "openai:stand-in-target", "evaluation.val_limit": 10}
    overrides["model.max_tokens"] = run.config.model.max_tokens
    training = Training(configured("docvqa", overrides), "docvqa", request.node.name, store=run.store)  # type: ignore[arg-type]
    training.prepare()
    return training.run


def operator(run: TrainingRun, chunks: Any) -> BatchRollouts:
    return BatchRollouts(task_id="evaluate", run=run.ref.model_dump(), chunks=chunks)


def context(run: TrainingRun, attempt: int = 1) -> Any:
    ti = SimpleNamespace(
        dag_id="train",
        task_id="evaluate",
        run_id=run.ref.run,
        map_index=-1,
        try_number=attempt,
        max_tries=1,
        xcom_push=lambda **_: None,
    )
    return {"ti": ti, "task_instance": ti, "run_id": run.ref.run}


def carried_out(run: TrainingRun, chunks: Any, attempt: int = 1) -> Any:
    """The task as Airflow runs it, deferred as often as it wants to be: its result, and how often that was."""

    async def first_event(deferred: TaskDeferred) -> Any:
        return await anext(deferred.trigger.run())

    times, go_on = 0, lambda: operator(run, chunks).execute(context(run, attempt))
    while True:
        try:
            return go_on(), times
        except TaskDeferred as deferred:
            times, payload = times + 1, asyncio.run(first_event(deferred)).payload
            go_on = partial(operator(run, chunks).execute_complete, context(run, attempt), payload)


def stored(run: TrainingRun) -> Any:
    return run.stored(Split.VAL, run.skill(0), 0, run.items(Split.VAL))


@pytest.mark.nightly
def test_a_stage_goes_as_one_job_and_is_stored_like_any_rollouts(run, server):
    chunks = seed_and_final.seed_plan(run)
    assert len(chunks) == 4
    assert carried_out(run, chunks) == ({"items": 10, "coverage": 1.0}, 1)
    assert len(server.batches.jobs) == 1
    body = json.loads(_sent(server)[0])["body"]
    assert (body["model"], body["max_completion_tokens"]) == ("stand-in-target", run.config.model.max_tokens)
    assert "temperature" not in body
    rollouts = stored(run)
    assert {rollout.trajectory.status for rollout in rollouts.values()} == {Status.OK}
    assert all(rollout.score is not None for rollout in rollouts.values())
    trajectory = next(iter(rollouts.values())).trajectory
    assert [message.role for message in trajectory.messages] == ["system", "user", "assistant"]
    assert trajectory.answer
    # Half of the price is counted for these.
    calls = [row.call for row in run.usage.read("searchqa", run.ref.run)]
    assert len(calls) == 10
    assert all(call.batch and call.stage == "seed" and call.prompt_tokens > 0 for call in calls)
    with ThreadPoolExecutor() as pool:
        [(_, chunk, _), *others] = (done := RunRollouts.of(run, pool)).planned
    assert (chunk.stage, len(others)) == ("seed", 3)
    assert sum(map(len, done.ran.values())) == 10
    # Nothing is sent again.
    assert operator(run, chunks).execute(context(run)) == {"items": 0, "coverage": 1.0}
    assert len(server.batches.jobs) == 1
    assert seed_and_final.start(run).current.evaluation.coverage == 1.0
    with pytest.raises(AirflowSkipException):
        operator(run, []).execute(context(run))


def test_a_run_that_began_without_batch_jobs_sends_none(run, server):
    model = run.record.config.model.model_copy(update={"batch": False})
    config = run.record.config.model_copy(update={"model": model})
    run.store.put_model(run.keys.config, run.record.model_copy(update={"config": config}))
    with pytest.raises(AirflowFailException, match=r"this run began with model\.batch"):
        operator(run, seed_and_final.seed_plan(run)).execute(context(run))
    assert not server.batches.jobs


@pytest.mark.nightly
def test_only_what_failed_is_sent_again(run, server, monkeypatch):
    chunks = seed_and_final.seed_plan(run)
    asked: list[Any] = []

    def fail_twice(request: Any) -> Any:
        asked.append(request)
        if len(asked) <= 2:
            raise ModelError("overloaded")
        return chat.complete(request, server.answering(request))

    monkeypatch.setattr(server.batches, "respond", fail_twice)
    with pytest.raises(AirflowException, match="only 80%"):
        carried_out(run, chunks)
    failed = {item: one.trajectory for item, one in stored(run).items() if one.trajectory.status is not Status.OK}
    assert {one.status for one in failed.values()} == {Status.MODEL_ERROR}
    assert {one.error for one in failed.values()} == {"overloaded"}

    assert carried_out(run, chunks, attempt=2) == ({"items": 2, "coverage": 1.0}, 1)
    assert len(asked) == 12
    assert [json.loads(line)["body"]["messages"] for line in _sent(server)] == [one["messages"] for one in asked[:2]]


def _sent(server: BatchServer) -> list[bytes]:
    """The lines of the job that was sent last."""
    last = list(server.batches.jobs.values())[-1]
    return server.batches.files[last["input_file_id"]].splitlines()


@pytest.mark.nightly
def test_an_attempt_that_lost_its_worker_finds_its_job_again(run, server):
    chunks = seed_and_final.seed_plan(run)
    with pytest.raises(TaskDeferred):
        operator(run, chunks).execute(context(run))

    # In a retried epoch another task of another DAG run comes to the same step.
    again = context(run, attempt=2)
    again["ti"].task_id, again["ti"].run_id = "step_1.evaluate", "epoch__retried"
    # The job is complete by now, so the second attempt need not wait.
    assert operator(run, chunks).execute(again) == {"items": 10, "coverage": 1.0}
    assert len(server.batches.jobs) == 1


@pytest.mark.nightly
def test_a_stage_that_is_too_large_for_a_job_goes_as_several(pages, server, monkeypatch):
    chunks = seed_and_final.seed_plan(pages)
    monkeypatch.setattr(OpenAIBatchAdapter, "max_payload_bytes", 150_000)

    result, times = carried_out(pages, chunks)

    files = [server.batches.files[job["input_file_id"]] for job in server.batches.jobs.values()]
    assert result == {"items": 10, "coverage": 1.0}
    assert len(files) == times > 1
    assert max(map(len, files)) <= 150_000
    assert sum(len(file.splitlines()) for file in files) == 10
    assert {one.trajectory.status for one in stored(pages).values()} == {Status.OK}
    stages = timing.load(pages.store, pages.keys.moment(pages.timeline[0]))
    assert len([row for row in stages if row.stage == "seed"]) == times


@pytest.mark.parametrize(
    ("benchmark", "overrides", "why"),
    [
        ("searchqa", {"model.reasoning_effort": "off"}, "model.reasoning_effort = 'off'"),
        ("searchqa", {"model.target": "anthropic:m", "model.reasoning_effort": "low"}, "only at openai"),
        ("searchqa", {"model.target": "openai-chat:stand-in-target"}, "has no batch API here"),
        ("officeqa", {}, "shows or judges files"),
    ],
)
def test_what_a_batch_job_cannot_do_is_refused(server, benchmark, overrides, why):
    config = configured(benchmark, {"model.batch": True, "model.target": "openai:stand-in-target"} | overrides)
    with pytest.raises(ConfigError, match=why):
        check_batch(config, benchmarks.load(benchmark))


def test_a_benchmark_that_runs_code_is_refused(server):
    config = configured("searchqa", {"model.batch": True, "model.target": "openai:stand-in-target"})
    with pytest.raises(ConfigError, match="executes code"):
        check_batch(config, SimpleNamespace(runs_code=True))  # type: ignore[arg-type]
    check_batch(configured("searchqa", {}), SimpleNamespace(runs_code=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_job_is_not_sent_to_an_address_of_the_environment(monkeypatch, provider):
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://127.0.0.1:9/v1")
    fields = {"conn_type": "pydanticai", "password": "key", "extra": {"model": f"{provider}:m"}}
    config = configured("searchqa", {"model.batch": True, "model.target": f"{provider}:m"})
    monkeypatch.setenv(f"AIRFLOW_CONN_{config.model.target_conn_id.upper()}", json.dumps(fields))
    with pytest.raises(ConfigError, match=f"{provider.upper()}_BASE_URL"):
        check_batch(config, SimpleNamespace(runs_code=False))  # type: ignore[arg-type]
    fields["host"] = "http://127.0.0.1:8"
    monkeypatch.setenv(f"AIRFLOW_CONN_{config.model.target_conn_id.upper()}", json.dumps(fields))
    check_batch(config, SimpleNamespace(runs_code=False))  # type: ignore[arg-type]
