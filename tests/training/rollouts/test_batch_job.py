"""What the rows of a batch job become, and which entries a job has."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.training.rollouts.batch_job import FRAME_BYTES, BatchWork, _rows
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, store_plan
from skillopt_airflow.training.run.spending import limits_of_run, share_records
from skillopt_airflow.training.step import seed_and_final
from tests.training.in_process import Training
from tests.training.local_store import LocalStore

ANSWER = "<answer>Eiffel</answer>"
MAX_REQUESTS, MAX_BYTES = 50_000, 200_000_000


@pytest.fixture(scope="module")
def prepared() -> Training:
    training = Training.of(
        model__target="openai:gpt-5", model__batch=True, evaluation__val_limit=10, sandbox__items_per_container=5
    )
    training.prepare()
    return training


@pytest.fixture
def training(prepared: Training) -> Training:
    """The prepared run in a store of this test's own."""
    store = LocalStore()
    store.objects = dict(prepared.store.objects)
    return Training(prepared.config, store=store)


def stored_of(training: Training) -> Any:
    return training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.items(Split.VAL))


def work_of(training: Training) -> BatchWork:
    return BatchWork(training.run, seed_and_final.seed_plan(training.run), "run")


def row(index: int, status: str = "success", **fields: Any) -> str:
    usage = {"input_tokens": 100, "output_tokens": 10}
    base = {"index": index, "status": status, "output": None, "error": None, "usage": usage, "finish_reason": "stop"}
    return json.dumps(base | fields)


def answered(training: Training, work: BatchWork, *rows: str) -> None:
    """Store the rows as the job's answers, and what came of them."""
    path = work.results.partition("@")[2].partition("/")[2]
    training.store.put_text(f"{path}/answers.jsonl", "\n".join(rows))
    work.record("answers.jsonl")


def recorded(training: Training, *rows: str) -> Any:
    """Return what came of a job with these rows, and good ones for the rest, by place in the job."""
    work = work_of(training)
    work.begin(MAX_REQUESTS, MAX_BYTES)
    given = {json.loads(one)["index"] for one in rows}
    answered(training, work, *rows, *(row(place, output=ANSWER) for place in range(10) if place not in given))
    stored = stored_of(training)
    return [stored[entry.item_id].trajectory for entry in work.job.entries]


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"output": ANSWER}, Status.OK, ""),
        ({"output": "", "finish_reason": "content_filter"}, Status.REFUSED, "content_filter"),
        ({"status": "error", "error": {"message": "no", "provider_code": "content_filter"}}, Status.REFUSED, "filter"),
        ({"status": "error", "error": {"message": "bad\nrequest"}}, Status.MODEL_ERROR, "bad request"),
        ({"status": "expired"}, Status.TIMEOUT, "expired"),
        ({"status": "missing", "usage": None, "finish_reason": None}, Status.MODEL_ERROR, "missing"),
        ({"status": "error", "error": {"message": "prompt is too long", "provider_code": "400"}}, Status.TOO_LONG, ""),
        ({"status": "error", "error": {"message": "flagged", "provider_code": "429"}}, Status.MODEL_ERROR, "flagged"),
        ({"output": ANSWER, "finish_reason": "error"}, Status.MODEL_ERROR, "error"),
        ({"status": "invalid_output", "finish_reason": "refusal"}, Status.REFUSED, "refusal"),
        ({"status": "invalid_output"}, Status.EMPTY, ""),
        ({"output": "<think>so</think>"}, Status.EMPTY, ""),
        ({"output": ANSWER, "finish_reason": "model_length"}, Status.TRUNCATED, ""),
        ({"output": ANSWER, "finish_reason": "max_tokens"}, Status.TRUNCATED, ""),
        ({"status": "invalid_output", "finish_reason": "length"}, Status.TRUNCATED, ""),
    ],
)
def test_a_row_becomes_a_typed_status(training, fields, status, error):
    trajectory = recorded(training, row(0, **fields))[0]
    assert trajectory.status is status
    assert error in trajectory.error


def test_rows_out_of_order_reach_their_items_without_the_thinking_that_a_server_left_in_them(training):
    answers = [row(place, output=f"maybe <answer>Rome</answer></think><answer>{place}</answer>") for place in range(10)]
    found = recorded(training, *reversed(answers))
    assert [one.answer for one in found] == [str(place) for place in range(10)]
    assert [one.messages[-1].content for one in found] == [f"<answer>{place}</answer>" for place in range(10)]


@pytest.mark.parametrize(
    ("fields", "status", "answer"),
    [
        ({"output": "<answer>Eiffel \ud83d</answer>"}, Status.OK, "Eiffel \ufffd"),
        ({"output": "<answer>Eiffel\0</answer>", "finish_reason": "length"}, Status.TRUNCATED, "Eiffel\ufffd"),
        ({"output": "\u2028\x85<answer>Eiffel</answer>"}, Status.OK, "Eiffel"),
        ({"status": "error", "error": {"message": "no \ud83d"}}, Status.MODEL_ERROR, ""),
    ],
)
def test_text_that_cannot_be_stored_as_it_is_costs_no_other_item(training, fields, status, answer):
    first, *others = recorded(training, row(0, **fields))
    assert (first.status, first.answer) == (status, answer)
    assert {other.answer for other in others} == {"Eiffel"}


@pytest.mark.parametrize("output", ["a\u2028b", "a\x85b", "a\x0cb"])
def test_a_separator_within_an_answer_ends_no_row(output):
    text = json.dumps({"index": 0, "output": output}, ensure_ascii=False)
    assert [one["output"] for one in _rows(f"{text}\r\n\n{text}\n")] == [output, output]


def test_a_job_under_way_stays_as_it_was_sent_though_another_run_stored_some_of_it(training):
    work = work_of(training)
    assert not work.under_way
    work.begin(MAX_REQUESTS, MAX_BYTES)
    sent = work.job.entries
    recorded(training)
    assert not work_of(training).under_way
    # As if the worker had died between the rows and the mark behind them.
    training.store.put_model(f"{work._plan.removesuffix('.json')}/batch.json", work.job)
    assert work_of(training).job.entries == sent


@pytest.mark.parametrize("failed", ["", "expired"])
def test_a_job_is_counted_once_whatever_another_run_and_a_former_attempt_stored(training, failed):
    second = Training(training.config, "searchqa", store=training.store, name="second")
    second.prepare()
    ours = work_of(second)
    ours.begin(MAX_REQUESTS, MAX_BYTES)
    recorded(training)
    recorded(second, *([row(2, failed)] if failed else []))
    # As if the worker had died between the rows and the mark behind them.
    second.store.put_model(f"{ours._plan.removesuffix('.json')}/batch.json", ours.job)
    recorded(second, *([row(2, failed)] if failed else []))
    for run in (training.run, second.run):
        assert len(list(run.usage.rows("searchqa", run.ref.run))) == 10


@pytest.mark.parametrize("lost", ["put_model", "delete"])
def test_a_job_is_settled_once_though_the_store_goes_away_behind_its_answers(lost, monkeypatch):
    training = Training.of(
        model__target="openai:gpt-5", model__batch=True, evaluation__val_limit=10, budget__max_calls=99
    )
    training.prepare()
    run, work = training.run, work_of(training)
    assert work.reserve().calls == 10
    assert limits_of_run(run).calls == 99 - 10
    work.begin(MAX_REQUESTS, MAX_BYTES)
    with monkeypatch.context() as patched:
        patched.setattr(run.store, lost, Mock(side_effect=StoreError("no bucket")))
        with pytest.raises(StoreError, match="no bucket"):
            answered(training, work, *(row(place, output=ANSWER) for place in range(10)))
    again = work_of(training)
    assert again.under_way
    again.record("answers.jsonl")
    assert not work_of(training).under_way
    assert limits_of_run(run).calls == 99 - 10
    assert not share_records(run)


def test_another_plan_makes_another_job(training):
    first = work_of(training)
    first.begin(MAX_REQUESTS, MAX_BYTES)
    other = BatchWork(training.run, seed_and_final.seed_plan(training.run)[:1], "run")
    assert len(other.job.entries) < len(first.job.entries)
    assert other.job.number == first.job.number


def test_a_job_has_no_more_requests_than_the_budget_has_calls(training):
    work = work_of(training)
    everything = work.job.entries
    for enough in (None, 10):
        work.shorten(enough)
    assert work.job.entries == everything
    assert not stored_of(training)
    work.shorten(4)
    assert len(work.begin(MAX_REQUESTS, MAX_BYTES)) == 4
    assert work.job.entries == everything[:4]

    stored = stored_of(training)
    assert set(stored) == {entry.item_id for entry in everything[4:]}
    assert {one.trajectory.status for one in stored.values()} == {Status.BUDGET}
    assert {one.trajectory.error for one in stored.values()} == {"budget.max_calls is used up"}

    # A later attempt, which has to find this very job again.
    assert work_of(training).under_way
    assert work_of(training).job.entries == everything[:4]


def test_a_plan_that_shrank_to_nothing_is_covered(training):
    run, before = training.run, seed_and_final.seed_plan(training.run)
    emptied = store_plan(run, run.timeline[0], "seed", [])
    work = BatchWork(run, emptied, "run")
    assert len(emptied) == len(before)
    assert not work.job.entries
    assert work.tally().coverage == 1.0


def test_each_skill_of_a_job_has_a_coverage_of_its_own(training):
    run = training.run
    run.store.put_text(run.keys.skill(1), "# Another")
    item_ids = [item.id for item in run.item_refs(Split.VAL)]
    chunks = chunks_of(run.config, "evaluate", [run.keys.skill(0), run.keys.skill(1)], Split.VAL, item_ids)
    work = BatchWork(run, store_plan(run, run.timeline[0], "evaluate", chunks), "run")
    work.refuse(
        "budget.max_calls", [entry for entry in work.job.entries if chunks[entry.chunk].skill == run.keys.skill(1)]
    )
    work.refuse("budget.max_calls", work.job.entries[:1])
    found = [(tally.planned, sum(tally.failures.values()), wanted) for tally, wanted in work.tallies()]
    assert found == [(10, 1, pytest.approx(0.95)), (10, 10, pytest.approx(0.95))]


def test_a_job_has_no_more_requests_than_the_provider_takes_and_the_next_one_the_others(training):
    first = work_of(training)
    everything = first.job.entries
    first.begin(6, MAX_BYTES)
    assert (first.job.entries, first.job.later) == (everything[:6], everything[6:])
    # An attempt that has to find this job again, whatever the limits are by now.
    assert len(work_of(training).begin(2, MAX_BYTES)) == 6
    answered(
        training, first, *(row(place, "expired" if place == 2 else "success", output=ANSWER) for place in range(6))
    )

    second = work_of(training)
    assert (second.job.entries, second.job.earlier) == (everything[6:], 6)
    assert second.results != first.results
    second.begin(MAX_REQUESTS, MAX_BYTES)
    answered(training, second, *(row(place, output=ANSWER) for place in range(4)))
    assert not second.job.later
    assert work_of(training).job.entries == (everything[2],)


def test_a_job_has_no_more_bytes_than_the_provider_takes(training):
    first = work_of(training)
    sizes = [len(json.dumps(request)) + FRAME_BYTES for request in first.begin(MAX_REQUESTS, MAX_BYTES)]
    for most, sent in ((sum(sizes[:3]) - 1, 2), (sum(sizes[:3]), 3), (1, 1)):
        training.store.delete(f"{first._plan.removesuffix('.json')}/batch.json")
        assert len(work_of(training).begin(MAX_REQUESTS, most)) == sent
