from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Split, Status, Trajectory
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox.docker.container import identity
from skillopt_airflow.sandbox.kubernetes.pod import pod_labels, workload_label
from skillopt_airflow.sandbox.kubernetes.remote_folder import gateway_settings
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.data.item_tables import save_items
from skillopt_airflow.store.keys import item_file
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, ids, store_plan
from skillopt_airflow.training.rollouts.workload import BenchmarkWorkload, ChunkWorkload
from skillopt_airflow.training.run.run import TrainingRun, contents
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.training.run.spending import limits_of_run, share_records
from skillopt_airflow.training.step.seed_and_final import seed_plan
from tests.gateway.foreign_server import ForeignServer, serving
from tests.training.in_process import Training, call
from tests.training.served_training import ServedTraining, connect, training


@pytest.mark.parametrize("runs_code", [False, True])
@pytest.mark.parametrize("harness", ["chat", "tools", "codex", "claude_code"])
def test_whatever_executes_a_models_words_gets_one_container_an_item(harness: str, runs_code: bool) -> None:
    config = TrainConfig.from_layers({"model": {"harness": harness}})
    workload = BenchmarkWorkload(cast(Benchmark, SimpleNamespace(runs_code=runs_code)), config, lambda _: {})
    assert workload.one_item_each is (runs_code or HARNESSES[harness].is_cli)


def test_equal_runs_of_installations_with_stores_of_their_own_do_not_remove_each_others_containers() -> None:
    training = Training.of()
    training.prepare()
    run = training.run
    (ref, *_) = seed_plan(run)

    def named(**storage: str) -> dict[str, str]:
        same = RunRef(benchmark=run.ref.benchmark, run=run.ref.run, storage=StorageGroup(**storage))
        opened = TrainingRun(same, run.connections)
        opened.store.put_model(opened.keys.config, run.record)
        return identity(ChunkWorkload(opened, ref, "scheduled__2026-11-21T00:00:00+00:00").labels)

    one, again, other, below = named(), named(), named(bucket="other"), named(prefix="team/")
    assert one == again
    assert len({workload_label(each) for each in (one, other, below)}) == 3
    assert pod_labels(below, 5.4)["skillopt/store"] == "skillopt-team"


def test_cut_answers_are_scored_and_not_made_again() -> None:
    training = Training.of(sandbox__items_per_container=6)
    training.fail = lambda stage, item_id: Status.TIMEOUT if item_id.endswith("1") else Status.TRUNCATED
    refs = training.prepare()
    training.run_containers(refs)
    chunk = ChunkWorkload(training.run, refs[0], "run")
    tally, failed = chunk.tally(), [item.id for item in chunk.assigned if item.id.endswith("1")]
    assert (tally.planned, tally.truncated, tally.scored) == (6, 6 - len(failed), 6 - len(failed))
    assert [item.id for item in chunk.items] == failed
    assert tally.failures == ({Status.TIMEOUT: len(failed)} if failed else {})


@pytest.mark.nightly
def test_an_item_whose_reference_cannot_be_read_fails_alone() -> None:
    training = Training.of("spreadsheetbench", evaluation__val_limit=None, evaluation__test_limit=None)
    chunk = ChunkWorkload(training.run, training.prepare()[0], "run")
    first, second, *_ = chunk.assigned
    (golden,) = contents(training.run, second.reference_files).values()
    training.store.objects[item_file("", first.reference_files[0].sha256)] = b"broken"
    answered = [Trajectory(item_id=item.id, status=Status.OK, files=("output.xlsx",)) for item in (first, second)]
    chunk.record([Outcome(one, {"output.xlsx": golden}) for one in answered], [call("target", chunk.stage, 400)])
    assert chunk.tally().failures == {Status.SANDBOX_ERROR: 1}
    assert [result.hard for result in chunk.ended() if result.item_id == second.id] == [1.0]
    assert len(training.run.usage.read("spreadsheetbench", training.run.account)) == 1
    key = training.run.rollout_key(Split.VAL, training.run.skill(0), 0)
    (stored,) = training.run.rollouts.errors(key, "run", training.run.item_refs(Split.VAL)).values()
    assert "reference files are at fault" in stored.trajectory.error
    assert first.id in [item.id for item in chunk.items]


def test_text_that_arrow_cannot_hold_costs_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training.of()
    chunk = ChunkWorkload(training.run, training.prepare()[0], "run")
    first, second, third, *_ = chunk.assigned

    def score(item: Item, trajectory: Trajectory) -> Score:
        return Score(hard=1, soft=1, feedback="\ud83d" if item.id == second.id else "\0")

    monkeypatch.setattr(type(training.run.benchmark), "score", lambda self, item, trajectory: score(item, trajectory))
    said = (Message(role="assistant", content="\ud83d"),)
    answered = [
        Trajectory(item_id=first.id, status=Status.OK, answer="\ud83d", messages=said),
        Trajectory(item_id=second.id, status=Status.OK, answer="plain"),
        Trajectory(item_id=third.id, status=Status.MODEL_ERROR, error="\udfff"),
    ]
    chunk.record([Outcome(one) for one in answered], [call("target", chunk.stage, 400)])
    stored = training.run.stored(Split.VAL, training.run.skill(0), 0, [first, second])
    assert {item: one.score.feedback for item, one in stored.items() if one.score} == {
        first.id: "\ufffd",
        second.id: "\ufffd",
    }
    assert stored[first.id].trajectory.answer == stored[first.id].trajectory.messages[0].content == "\ufffd"
    assert chunk.tally().failures == {Status.MODEL_ERROR: 1}


def test_rollouts_and_judge_share_what_a_chunk_may_spend() -> None:
    training = Training.of(budget__max_calls=101, model__judge="openai-chat:judge", sandbox__items_per_container=12)
    chunks = [ChunkWorkload(training.run, ref, "run") for ref in training.prepare()]
    assert len(chunks) == 2
    with chunks[0].allotted() as first, chunks[1].allotted(2) as second:
        # Of each half a quarter is the judge's, and the second has two gateways.
        assert (first.budget.calls, second.budget.calls) == (24, 12)
        assert sum(record.calls for record in share_records(training.run).values()) == 48
        chunks[0].record([], [call("target", "seed", 400)])
        first.count(call("target", "seed", 400))
        first.complete()
    for chunk in chunks:
        chunk.release_budget()
    # The second has died, as far as anybody can tell.
    assert limits_of_run(training.run).calls == 101 - 1 - 12


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("samples", "useless", "wanted"), [(1, 0, 0.9), (4, 0, 0.975), (1, 1, 1 - 1 / 19), (1, 2, 1.0)]
)
def test_the_samples_of_an_evaluation_and_its_items_of_no_use_may_lack_together_what_one_sample_may(
    samples: int, useless: int, wanted: float
) -> None:
    training = Training.of(evaluation__samples=samples, evaluation__val_limit=20, evaluation__min_coverage=0.9)
    training.prepare()
    keys, items = training.run.keys, training.run.items(Split.VAL)
    spoiled = [item.model_copy(update={"unusable": "no answers"}) for item in items[:useless]]
    save_items(training.store, keys.items(Split.VAL), [*spoiled, *items[useless:]])
    run = TrainingRun(training.run.ref, training.run.connections)
    found = [ChunkWorkload(run, ref, "run").wanted_coverage for ref in seed_plan(run)]
    assert found == [pytest.approx(wanted)] * samples


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, server: ForeignServer, key: str = "sk-right", **knobs: Any
) -> Iterator[tuple[ServedTraining, JsonObject]]:
    """A run whose only chunk runs with the gateway, the program and the loop over containers of every rollout."""
    with serving(server) as running:
        connect(monkeypatch, "target", running.base_url, key)
        trained = training(sandbox__max_containers=1, model__concurrency=4, preflight=False, **knobs)
        (chunk,) = trained.prepare()
        yield trained, chunk


def test_a_chunk_whose_first_items_are_refused_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ForeignServer("sk-right")
    with served(monkeypatch, server, "sk-wrong", evaluation__val_limit=60) as (trained, chunk):
        work = trained.run_program(chunk)
    assert str(work.hopeless).startswith("8 of 8 items: model_error: status_code: 401")
    assert work.is_decided()
    key = trained.run.rollout_key(Split.VAL, trained.run.skill(0), 0)
    stored = trained.run.rollouts.errors(key, "run", work.items)
    assert {row.trajectory.status for row in stored.values()} == {Status.MODEL_ERROR}
    # Of a call that was under way at the end there is no row.
    assert 8 <= len(stored) <= server.calls < 20


def test_replies_with_half_a_surrogate_pair_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ForeignServer("sk-right", text="Well \ud83d <answer>Paris \0</answer>")
    with served(monkeypatch, server, evaluation__val_limit=8) as (trained, chunk):
        work = trained.run_program(chunk)
    assert (work.tally().scored, work.tally().planned) == (8, 8)
    stored = trained.run.stored(Split.VAL, trained.run.skill(0), 0, work.assigned)
    assert {one.trajectory.answer for one in stored.values()} == {"Paris \ufffd"}


def test_items_that_fail_where_others_did_not_fail_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ForeignServer("sk-right")
    with served(monkeypatch, server, evaluation__val_limit=20) as (trained, chunk):
        first = ChunkWorkload(trained.run, chunk, "run").items[0]
        one = Chunk(stage="seed", skill=trained.run.keys.skill(0), split=Split.VAL, sample=0, item_ids=(first.id,))
        trained.run_programs(store_plan(trained.run, trained.run.timeline[0], "one", [one]))
        server.status = 400
        work = trained.run_program(chunk)
    assert work.hopeless is None
    assert len(work.items) == 19
    assert server.calls == 20


@pytest.mark.parametrize(
    ("isolated", "concurrency", "chunks", "share"), [(6, 32, 4, 8), (8, 32, 3, 10), (400, 32, 1, 32), (6, 2, 4, 1)]
)
def test_chunks_at_the_same_time_share_the_runs_concurrency(
    isolated: int, concurrency: int, chunks: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "target", "http://127.0.0.1:9/v1", "none")
    trained = training(evaluation__val_limit=24, sandbox__items_per_container=isolated, model__concurrency=concurrency)
    found = [ChunkWorkload(trained.run, ref, "run") for ref in trained.prepare()]
    assert len(found) == chunks
    assert {work.settings.concurrency for work in found} == {share}
    limits = [gateway_settings(work, RemainingBudget()) for work in found]
    assert {(limit.max_concurrency, limit.share) for limit in limits} == {(concurrency, share)}


def test_a_speculation_takes_no_share_of_the_evaluation_beside_it() -> None:
    trained = training(evaluation__val_limit=8)
    trained.prepare()
    run, skill = trained.run, trained.run.keys.skill(0)
    chunks = [
        Chunk(stage=stage, skill=skill, split=split, sample=0, item_ids=tuple(ids(run.item_refs(split))[:8]))
        for stage, split in (("evaluate", Split.VAL), ("speculate", Split.TRAIN))
    ]
    refs = store_plan(run, run.timeline[1], "evaluate", chunks)
    concurrency = run.config.model.concurrency
    assert [ChunkWorkload(run, ref, "run").concurrency for ref in refs] == [concurrency, concurrency]
