"""The preflight against servers, sandboxes and stores that work, and others."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from skillopt_airflow.core.config.sampling import PREFLIGHT_ATTEMPTS
from skillopt_airflow.core.errors import (
    ModelConnectionError,
    ModelOutputError,
    ModelUnavailable,
    SkillOptError,
    StoreError,
)
from skillopt_airflow.core.values.types import JsonObject, Split, Status
from skillopt_airflow.optimizer.answers import check_answers
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.prepare.preflight import check_conditional_write, preflight, unscored_items
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, store_plan
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.step import seed_and_final
from tests.core.provider_rows import ERRORS
from tests.gateway.foreign_server import ForeignServer, serving
from tests.gateway.scripted_provider import ScriptedProvider, completion
from tests.models.rambling_server import REFUSED, RamblingServer
from tests.training.in_process import Training
from tests.training.local_store import LocalStore
from tests.training.served_training import ROLES, ServedTraining, connect, training

KEY = "sk-right"


class ReadOnly(LocalStore):
    def create(self, key: str, body: bytes) -> None:
        raise StoreError(f"access to {key} was denied")


def prepared(monkeypatch: pytest.MonkeyPatch, host: str, key: str = KEY, **overrides: Any) -> ServedTraining:
    for role in ROLES:
        connect(monkeypatch, role, host, key)
    trained = training(**overrides)
    trained.prepare()
    return trained


def first_batch(trained: Training) -> list[JsonObject]:
    run, moment = trained.run, trained.run.timeline[1]
    (items,) = run.slices(moment)
    chunks = chunks_of(run.config, "rollout", [run.keys.skill(0)], Split.TRAIN, ids(items))
    return store_plan(run, moment, "rollout", chunks)


def tried(trained: Training) -> None:
    preflight(trained.run, trained._roll_out)


def test_a_healthy_run_pays_for_one_item_and_one_answer_and_finds_the_item_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serving(ForeignServer(KEY)) as server:
        trained = prepared(monkeypatch, server.base_url)
        tried(trained)
        assert server.calls == 2
        text = "\n".join(caplog.messages)
        assert "target answered in 0." in text
        assert "310 + 12 tokens (ok)" in text
        assert "optimizer answered in" in text
        assert "buckets skillopt and skillopt-artifacts take conditional writes" in text
        run = trained.run
        usage = [(row.call.stage, row.call.role) for row in run.usage.read("searchqa", "run")]
        assert sorted(usage) == [("preflight", "optimizer"), ("preflight", "target")]
        assert not [key for key in trained.store.objects if "write_probe" in key]
        trained.run_programs(first_batch(trained))
        assert server.calls == 2 + 8 - 1


FAULTS: list[tuple[dict[str, Any], type[SkillOptError], str]] = [
    ({"key": "sk-other"}, ModelConnectionError, "password"),
    ({"model": "another-model"}, ModelConnectionError, "name of its model"),
    ({"html": True}, ModelConnectionError, "no model server"),
    ({"status": 400}, ModelConnectionError, "under model."),
    ({"status": 503}, ModelUnavailable, "has no answer now"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "error", "advice"), FAULTS, ids=lambda value: str(value))
def test_what_is_wrong_is_said_of_both_connections_after_a_few_calls(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], error: type[SkillOptError], advice: str
) -> None:
    with serving(ForeignServer(**{"key": KEY} | fault)) as server:
        trained = prepared(monkeypatch, server.base_url)
        with pytest.raises(SkillOptError) as raised:
            tried(trained)
    assert type(raised.value) is error
    target, optimizer = str(raised.value).splitlines()
    assert target.startswith("connection skillopt_target: the target openai-chat:some-model ")
    assert optimizer.startswith("connection skillopt_optimizer: the optimizer openai-chat:some-model ")
    assert advice in target
    assert advice in optimizer
    assert 2 <= server.calls <= 2 * PREFLIGHT_ATTEMPTS


@pytest.mark.parametrize("bucket", ["store", "artifacts"])
def test_a_bucket_that_nobody_may_write_to(bucket: str) -> None:
    trained = Training.of()
    trained.prepare()
    closed = ReadOnly()
    if bucket == "artifacts":
        trained.models.artifacts = closed
    else:
        closed.objects = trained.store.objects
        trained.run.store = closed
    with pytest.raises(StoreError, match=r"^access to .*write_probe.* was denied$"):
        tried(trained)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (Status.SANDBOX_ERROR, "sandbox_error: played"),
        (Status.TIMEOUT, "has no answer now"),
        (Status.BUDGET, "under budget"),
        (Status.REFUSED, ": refused. Change or shorten the prompts"),
    ],
)
def test_what_became_of_the_item(status: Status, message: str) -> None:
    trained = Training.of()
    trained.fail = lambda stage, item_id: status if stage == "preflight" else None
    trained.prepare()
    with pytest.raises(SkillOptError, match=message):
        tried(trained)


def answer(text: str | None, finish_reason: str = "stop", **message: Any) -> tuple[int, JsonObject]:
    document = json.loads(completion(text, finish_reason, **message).body)
    return 200, document | {"usage": {"prompt_tokens": 310, "completion_tokens": 500, "total_tokens": 810}}


UNANSWERED: dict[str, list[tuple[int, Any]]] = {
    **{f"{row.provider} {row.sends}": [(row.http_status, row.body)] for row in ERRORS[::6] if "output" not in row.body},
    "two refusals": [
        (400, {"error": {"message": "Content Exists Risk"}}),
        (403, {"error": {"message": "x", "metadata": {"flagged_input": "y"}}}),
    ],
    "filtered": [answer("", "content_filter")],
    "empty": [answer(None, reasoning_content="It must be Paris.")],
    "all of the tokens spent on reasoning": [answer("", "length", reasoning_content="Hm")],
}


@pytest.mark.nightly
@pytest.mark.parametrize("replies", UNANSWERED.values(), ids=UNANSWERED)
def test_an_item_without_an_answer_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, replies: list[tuple[int, Any]]
) -> None:
    caplog.set_level(logging.INFO)
    with serving(ForeignServer(KEY, replies=list(replies))) as server:
        trained = prepared(monkeypatch, server.base_url)
        items = [item.id for item in unscored_items(trained.run)]
        tried(trained)
    assert len(server.bodies) == len(replies) + 1 + 1
    said = next(line for line in caplog.messages if line.startswith("training items "))
    assert all(name in said for name in items[: len(replies)])
    assert f"; item {items[len(replies)]} answered: target answered in 0." in said


EIGHT = {
    "refused": ([(400, {"error": {"message": "Content Exists Risk"}})] * 8, "Content Exists Risk"),
    "too long": ([(413, {"error": {"message": "no"}})] * 8, "too_long"),
    "empty": ([answer(None, reasoning_content="Hm")] * 8, "4000 tokens.*--reasoning-parser"),
    "cut": ([answer("", "length", reasoning_content="Hm")] * 8, "model.max_tokens.* model.reasoning_effort"),
    "mixed": ([answer(""), (400, {"error": {"message": "x", "code": "content_filter"}})] * 4, "empty; .*: refused"),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("replies", "words"), EIGHT.values(), ids=EIGHT)
def test_eight_items_without_an_answer_end_the_run_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, replies: list[tuple[int, Any]], words: str
) -> None:
    with serving(ForeignServer(KEY, replies=list(replies))) as server:
        trained = prepared(monkeypatch, server.base_url)
        with pytest.raises(ModelConnectionError, match=rf"^connection skillopt_target: the target .*{words}") as raised:
            tried(trained)
    assert len(server.bodies) == 8 + 1
    for wrong in ("correct its password", "correct its host", "correct the name"):
        assert wrong not in str(raised.value)


def test_nothing_is_tried_where_the_run_is_past_it() -> None:
    again = Training.of(train__num_epochs=1)
    again.run_containers(again.prepare())
    seed_and_final.start(again.run)
    tried(again)
    assert not again.models.prompts


def test_an_item_with_a_stored_score_is_not_paid_for_again() -> None:
    trained = Training.of(train__num_epochs=1)
    trained.prepare()
    first = unscored_items(trained.run)[0]
    tried(trained)
    second = unscored_items(trained.run)[0]
    assert second.id != first.id
    trained.run_containers(first_batch(trained))
    assert unscored_items(trained.run) == []
    tried(trained)
    assert trained.rollouts == {"preflight": 1, "rollout": 7}
    assert len(trained.run.stored(Split.TRAIN, trained.run.skill(0), 0, [first, second])) == 2


READY = '{"name": "preflight_result", "arguments": {"ready": true}}'


@contextmanager
def rambling(
    monkeypatch: pytest.MonkeyPatch, server: RamblingServer, **overrides: Any
) -> Iterator[tuple[ServedTraining, RamblingServer]]:
    """A run whose target is in order, and whose optimizer is the server."""
    with serving(ForeignServer(KEY)) as target, ScriptedProvider(server.answer) as optimizer:
        trained = prepared(monkeypatch, target.base_url, **overrides)
        connect(monkeypatch, "optimizer", optimizer.base_url, KEY)
        yield trained, server
        server.gone.set()


@pytest.mark.parametrize(
    "server",
    [RamblingServer(by_tool, '{"ready": true}') for by_tool in (None, "I am ready.", '{"ready": ')],
    ids=["refused", "prose", "cut"],
)
def test_an_optimizer_without_tool_calls_is_asked_in_plain_text_from_then_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, server: RamblingServer
) -> None:
    with rambling(monkeypatch, server) as (trained, _):
        tried(trained)
        assert server.with_tools == [True, False]
        (warning,) = [record for record in caplog.records if "in plain text" in record.getMessage()]
        assert warning.levelno == logging.WARNING
        # Another process opens the run again.
        later = TrainingRun(trained.run.ref, trained.run.connections)
        output = later.output_of("optimizer")
        with later.connections.optimizer(later.config.model, lambda call: None, lambda: None, output) as optimizer:
            check_answers(optimizer)
        assert server.with_tools == [True, False, False]
        assert later.output_of("judge") == "auto"
        server.by_tool = READY
        tried(trained)
        assert later.output_of("optimizer") == "auto"


CUT = "cut at the token limit"


@pytest.mark.parametrize(("by_tool", "words"), [('{"ready": ', CUT), (None, REFUSED), ("Yes.", CUT)])
def test_an_answer_of_no_use_is_not_blamed_on_the_host(
    monkeypatch: pytest.MonkeyPatch, by_tool: str | None, words: str
) -> None:
    with (
        rambling(monkeypatch, RamblingServer(by_tool)) as (trained, server),
        pytest.raises(ModelOutputError, match=words) as raised,
    ):
        tried(trained)
    assert server.with_tools == [True, False]
    assert "with a tool: " in str(raised.value)
    assert "in plain text: " in str(raised.value)
    assert "host" not in str(raised.value)


def test_a_slow_optimizer_is_waited_for_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("skillopt_airflow.training.prepare.preflight.LOG_SECONDS", 0.1)
    with rambling(monkeypatch, RamblingServer(READY, seconds=0.5)) as (trained, _):
        tried(trained)
    lines = [line for line in caplog.messages if line.startswith("waiting for connection skillopt_optimizer: ")]
    assert len(lines) >= 2
    assert all("openai-chat:some-model" in line for line in lines)


def test_a_model_that_only_calls_tools_without_end_is_asked_in_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RamblingServer(READY, '{"ready": true}', slow_tools=30.0)
    with rambling(monkeypatch, server, model__call_timeout=1.0) as (trained, _):
        tried(trained)
        assert trained.run.output_of("optimizer") == "text"


PROBE = "runs/b/r/write_probe"


class Undeleting(LocalStore):
    def delete(self, key: str) -> None:
        raise StoreError("nothing is ever deleted here")


class Unconditional(LocalStore):
    """As S3 servers that pass over If-None-Match."""

    def create(self, key: str, body: bytes) -> None:
        self.put_bytes(key, body)


class Careless(LocalStore):
    """As S3 servers that pass over If-Match."""

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self.put_bytes(key, body)


def test_nothing_is_left_of_a_try_or_of_an_interrupted_one(store: ObjectStore) -> None:
    check_conditional_write(store, PROBE)
    assert store.list_keys("runs/") == []
    store.put_bytes(PROBE, b"")
    check_conditional_write(store, PROBE)
    assert store.list_keys("runs/") == []


@pytest.mark.parametrize(("store", "condition"), [(Unconditional(), "If-None-Match"), (Careless(), "If-Match")])
def test_a_store_that_passes_over_the_condition(store: LocalStore, condition: str) -> None:
    with pytest.raises(StoreError, match=rf"s3://local/runs/b/r/write_probe: .* {condition} protects"):
        check_conditional_write(store, PROBE)
    assert store.objects == {}


def test_a_bucket_that_never_forgets_is_told_and_used(caplog: pytest.LogCaptureFixture) -> None:
    store = Undeleting()
    check_conditional_write(store, PROBE)
    check_conditional_write(store, PROBE)
    assert "nothing is ever deleted here" in caplog.text
