"""What `prepare` finds out about a run's connections before anything is stored or paid."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.resource_groups import ModelGroup, SandboxGroup, StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import (
    ConfigError,
    EngineUnavailable,
    ModelConnectionError,
    ModelUnreachable,
    ObjectMissing,
    SkillOptError,
    StoreUnavailable,
)
from skillopt_airflow.core.run.budget import MEASURING_ROLES
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.models import server_check
from skillopt_airflow.optimizer.judge import grade
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections, attach_storage, judge_conn_id
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input
from skillopt_airflow.pipeline.tasks.triggered import cell_config, form_config, publishing_ref
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import TrainingRun
from tests.gateway.foreign_server import ForeignServer, serving
from tests.training.in_process import Training
from tests.training.local_store import LocalStore
from tests.training.served_training import connect

NOWHERE = {"host": "http://127.0.0.1:1/v1", "password": "secret-key"}


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: dict[str, dict[str, Any]] = {
        "own": NOWHERE | {"extra": {"model": "openai-chat:m"}},
        "openai": {"password": "secret-key", "extra": {"model": "openai:gpt-5"}},
        "anthropic": {"password": "secret-key", "extra": {"model": "anthropic:claude-haiku-4-5"}},
    }
    for name, fields in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "pydanticai"} | fields))


def config(**model: Any) -> TrainConfig:
    return TrainConfig.from_layers({"model": {"target_conn_id": "openai", "optimizer_conn_id": "anthropic"} | model})


def image(config: TrainConfig) -> str:
    return AirflowConnections().image(config)


@pytest.mark.parametrize(
    ("model", "error", "named"),
    [
        ({"harness": "claude_code"}, ModelConnectionError, "connection openai: model.harness claude_code"),
        ({"reasoning_effort": "on"}, ConfigError, "model.reasoning_effort = 'on'"),
        ({"target_conn_id": "own"}, ModelUnreachable, "connection own"),
        ({"optimizer_conn_id": "own"}, ModelUnreachable, "connection own"),
        ({"target_conn_id": "missing"}, ModelConnectionError, "connection missing"),
    ],
)
def test_a_run_that_cannot_be(model: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error) as raised:
        image(config(**model))
    assert str(raised.value).startswith(named)
    assert "secret-key" not in str(raised.value)


def test_only_the_models_that_a_run_asks_are_checked() -> None:
    pinned = {"engine": "kubernetes", "image": f"registry/sandbox@sha256:{64 * '0'}"}
    away = {"optimizer_conn_id": "own", "target_conn_id": "openai"}
    measuring = TrainConfig.from_layers({"model": away, "sandbox": pinned})
    assert AirflowConnections().image(measuring, MEASURING_ROLES) == pinned["image"]
    judge = measuring.model.model_copy(update={"judge": "openai-chat:m"})
    judged = measuring.model_copy(update={"model": judge})
    with pytest.raises(ModelUnreachable, match="connection own"):
        AirflowConnections().image(judged, MEASURING_ROLES)
    assert AirflowConnections().image(judged, ()) == pinned["image"]


def test_an_object_store_without_a_connection_is_not_reached_by_the_workers_own_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ambient")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ambient")
    for reach in (AirflowConnections().s3_client, attach_storage):
        with pytest.raises(ConfigError, match=r"^storage\.conn_id = nobody_s3"):
            reach(StorageGroup(conn_id="nobody_s3"))
    # One that says nothing about credentials stands for those of the workers.
    monkeypatch.setenv(
        "AIRFLOW_CONN_NOBODY_S3", json.dumps({"conn_type": "aws", "extra": {"region_name": "eu-west-1"}})
    )
    AirflowConnections().s3_client(StorageGroup(conn_id="nobody_s3"))


def test_an_engine_without_a_connection(monkeypatch: pytest.MonkeyPatch, finished: TrainingRun) -> None:
    for name in ("check", "check_harness"):
        monkeypatch.setattr(server_check, name, lambda *_: None)
    named = r"sandbox\.conn_id = far_away"
    run = config().model_copy(update={"sandbox": SandboxGroup(conn_id="far_away")})
    with pytest.raises(AirflowFailException, match=named), fail_on_wrong_input():
        image(run)
    with pytest.raises(ConfigError, match=named):
        publishing_ref(finished, None, {"sandbox.conn_id": "far_away"})


class FinishedRun(AirflowConnections):
    """Airflow's models; the run's documents are in memory."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def object_store(self, storage: StorageGroup, bucket: str) -> LocalStore:
        return self._store


@pytest.fixture
def finished() -> TrainingRun:
    training = Training.of(model__target_conn_id="own", model__optimizer_conn_id="own", train__num_epochs=1)
    training.prepare()
    return TrainingRun(training.run.ref, FinishedRun(training.store))


def test_a_finished_run_for_its_own_model_and_for_another_one(finished: TrainingRun) -> None:
    assert publishing_ref(finished, None, None) == finished.ref
    assert publishing_ref(finished, "openai-chat:stand-in-target", {}) == finished.ref
    ref = publishing_ref(finished, "openai:gpt-6", {"model.target_conn_id": "openai"})
    model = TrainingRun(ref, finished.connections).config.model
    assert (model.target, model.target_conn_id) == ("openai:gpt-6", "openai")
    assert finished.config.model.target == "openai-chat:stand-in-target"


def test_a_finished_run_for_a_model_that_samples_otherwise(
    finished: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = {"conn_type": "pydanticai", "password": "k", "extra": {"model": "anthropic:claude-opus-5"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLAUDE", json.dumps(claude))
    monkeypatch.setattr(server_check, "check", lambda conn_id, name: None)
    model = finished.record.config.model.model_copy(update={"temperature": 0.0})
    config = finished.record.config.model_copy(update={"model": model})
    finished.store.put_model(finished.keys.config, finished.record.model_copy(update={"config": config}))
    run, other = TrainingRun(finished.ref, finished.connections), {"model.target_conn_id": "claude"}
    with pytest.raises(ConfigError, match=r"model\.temperature = 0\.0"):
        publishing_ref(run, "anthropic:claude-opus-5", other)
    ref = publishing_ref(run, "anthropic:claude-opus-5", other | {"model.temperature": None})
    assert TrainingRun(ref, run.connections).config.model.temperature is None
    # What its own target did is done.
    with pytest.raises(ConfigError, match=r"so model\.temperature cannot change"):
        publishing_ref(run, None, {"model.temperature": None})


def test_a_price_that_was_not_known_when_the_run_began_can_be_given_when_it_is_published(finished: TrainingRun) -> None:
    judge = finished.record.config.model.model_copy(update={"judge": "openai-chat:nobody-knows-its-price"})
    config = finished.record.config.model_copy(update={"model": judge})
    record = finished.record.model_copy(update={"config": config})
    finished.store.put_model(finished.keys.config, record)
    run = TrainingRun(finished.ref, finished.connections)
    price = {"input": 1.0, "output": 2.0}
    prices = {"openai-chat:stand-in-target": price, "openai-chat:stand-in-optimizer": price}
    with pytest.raises(ConfigError, match="no price is known for the judge"):
        publishing_ref(run, None, {"budget.max_usd": 2, "budget.prices": prices})
    prices |= {"openai-chat:nobody-knows-its-price": price}
    found = publishing_ref(run, None, {"budget.max_usd": 2, "budget.prices": prices}).prices
    assert found is not None
    assert all(found.values())


def test_a_finished_run_with_a_larger_budget(finished: TrainingRun) -> None:
    ref = publishing_ref(finished, None, {"budget.max_calls": 9000, "publishing.samples": 2, "storage.prefix": ""})
    assert TrainingRun(ref, finished.connections).config.budget.max_calls == 9000
    with pytest.raises(ConfigError, match=r"evaluation\.samples, train\.seed cannot change"):
        publishing_ref(finished, None, {"train.seed": 2, "evaluation.samples": 2, "budget.max_calls": 9})
    with pytest.raises(ConfigError, match=r"max_usd"):
        publishing_ref(
            finished, "openai-chat:nobody-knows-its-price", {"budget.max_usd": 2, "model.target_conn_id": "openai"}
        )


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A deployment file that allows nothing, and the connections that the benchmark names."""
    path = tmp_path / "deployment.yaml"
    path.write_text("{}")
    monkeypatch.setenv("SKILLOPT_DEPLOYMENT", str(path))
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", f"stand-in-{role}")
    return path


def test_a_finished_run_with_the_connection_that_its_benchmark_names_by_now(
    finished: TrainingRun, locked: Path
) -> None:
    renamed = {"model.target_conn_id": "skillopt_target"}
    assert publishing_ref(finished, None, renamed).overrides == renamed
    with pytest.raises(ConfigError, match=r"^model\.target_conn_id = 'openai'"):
        publishing_ref(finished, None, {"model.target_conn_id": "openai"})


@pytest.mark.parametrize("image", ["registry/sandbox@sha256:12", "sha256:12"])
def test_a_finished_run_whose_benchmark_runs_pods_by_now(finished: TrainingRun, locked: Path, image: str) -> None:
    locked.write_text("{defaults: {sandbox: {engine: kubernetes}}}")
    finished.store.put_model(finished.keys.config, finished.record.model_copy(update={"image": image}))
    run, pods = TrainingRun(finished.ref, finished.connections), {"sandbox.engine": "kubernetes"}
    if image.startswith("sha256:"):
        for overrides in (None, pods):
            with pytest.raises(ConfigError, match="made with the image sha256:12"):
                publishing_ref(run, None, overrides)
    else:
        assert publishing_ref(run, None, None) == run.ref
        assert publishing_ref(run, None, pods).overrides == pods
        with pytest.raises(ConfigError, match=r"^sandbox\.engine is fixed when the DAG is parsed"):
            publishing_ref(run, None, {"sandbox.engine": "docker"})


@pytest.mark.parametrize(
    ("target", "overrides", "named"),
    [
        ("openai-chat:m2", {}, "connection own: no model server answers"),
        ("nobody:m2", {}, "connection own: model 'nobody:m2'"),
        ("openai:m2", {"model.target_conn": "openai"}, "model.target_conn cannot change"),
    ],
)
def test_another_model_that_cannot_be(
    finished: TrainingRun, target: str, overrides: dict[str, Any], named: str
) -> None:
    with pytest.raises(SkillOptError, match=named):
        publishing_ref(finished, target, overrides)


@pytest.mark.parametrize("error", [ConfigError, ObjectMissing, ModelConnectionError, ModelUnreachable])
def test_what_is_wrong_fails_for_good(error: type[SkillOptError]) -> None:
    with pytest.raises(AirflowFailException, match="wrong"), fail_on_wrong_input():
        raise error("wrong")


@pytest.mark.parametrize(
    ("error", "awaits_models"), [(StoreUnavailable, False), (EngineUnavailable, False), (ModelUnreachable, True)]
)
def test_what_may_come_back_is_tried_again(error: type[SkillOptError], awaits_models: bool) -> None:
    with pytest.raises(error), fail_on_wrong_input(awaits_models=awaits_models):
        raise error("away")


def test_a_harness_that_cannot_run_the_benchmark() -> None:
    overrides = {"model.target_conn_id": "openai", "model.optimizer_conn_id": "anthropic", "model.harness": "tools"}
    with pytest.raises(ConfigError, match=r"model\.harness = 'tools'"):
        form_config("livemathematicianbench", {"overrides": overrides})
    with pytest.raises(ConfigError, match=r"model\.max_turns = 1"):
        form_config("searchqa", {"overrides": overrides})
    assert form_config("searchqa", {"overrides": overrides | {"model.max_turns": 2}}).model.harness == "tools"


def test_other_data_has_nothing_of_the_samples_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    task = {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}}
    files = {
        "benchmark.yaml": {"task": task, "train": {"batch_size": 64}},
        "sample/settings.yaml": {"train": {"batch_size": 3}, "gradient": {"minibatch_size": 2}},
        "presets/paper.yaml": {"settings": {"train": {"batch_size": 7}}},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    monkeypatch.setenv(LIST_VARIABLE, str(folder))
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", f"the-{role}")
    # Airflow hands over every field, with its default where nobody typed.
    untouched = {path: field.value for path, field in params.form(benchmark_config("mine"), ["paper"]).items()}

    def sizes(**typed: Any) -> tuple[int, int]:
        found = form_config("mine", untouched | {key.replace("__", "."): value for key, value in typed.items()})
        return found.train.batch_size, found.gradient.minibatch_size

    assert sizes() == (3, 2)
    assert sizes(data__uri="all.json") == sizes(overrides={"data.uri": "all.json"}) == (64, 8)
    assert sizes(data__uri="all.json", train__batch_size=5) == (5, 8)
    assert sizes(data__uri="all.json", overrides={"train.batch_size": 3}) == (3, 8)
    assert sizes(data__uri="all.json", preset="paper") == (7, 8)
    assert sizes(preset="paper") == (7, 2)


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A benchmark that asks a judge, and the models of a run on it."""
    folder = tmp_path / "judged"
    folder.mkdir()
    task = {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}, "judge": "Any spelling will do."}
    (folder / "benchmark.yaml").write_text(json.dumps({"task": task, "data": {"uri": "x.json"}}))
    monkeypatch.setenv(LIST_VARIABLE, str(folder))
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", f"the-{role}")


def test_an_image_that_was_named_for_one_harness_is_none_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deployment.yaml").write_text("{allowed: everything, defaults: {sandbox: {image: registry/chat}}}")
    monkeypatch.setenv("SKILLOPT_DEPLOYMENT", str(tmp_path / "deployment.yaml"))
    models = {"model.target_conn_id": "openai", "model.optimizer_conn_id": "anthropic"}
    codex = models | {"model.harness": "codex", "model.max_turns": 9}
    named = r"^model.harness = 'codex': sandbox.image = 'registry/chat'"
    with pytest.raises(ConfigError, match=named):
        form_config("searchqa", {"overrides": codex})
    with pytest.raises(ConfigError, match=named):
        cell_config("searchqa", form_config("searchqa", {"overrides": models}), "openai-chat:m", "codex")
    own = form_config("searchqa", {"overrides": codex | {"sandbox.image": "registry/codex"}})
    assert own.image == "registry/codex"
    # The images of the CLIs are made from that of chat.
    assert cell_config("searchqa", own, "openai-chat:m", "chat").image == "registry/codex"


@pytest.mark.usefixtures("judging")
def test_the_judge_is_the_optimizer_until_there_is_a_connection_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge_of(**asked: Any) -> tuple[str, str | None]:
        model = form_config("judged", {"overrides": asked}).model
        return judge_conn_id(model), model.judge

    assert judge_of() == ("skillopt_optimizer", "openai-chat:the-optimizer")
    assert judge_of(**{"model.judge": "openai-chat:x"}) == ("skillopt_optimizer", "openai-chat:x")
    assert judge_of(**{"model.optimizer": "openai-chat:y"})[1] == "openai-chat:y"
    connect(monkeypatch, "judge", "http://127.0.0.1:1/v1", "key", "the-judge")
    assert judge_of() == ("skillopt_judge", "openai-chat:the-judge")
    assert judge_of(**{"evaluation.judge": "rules"})[1] is None


@pytest.mark.usefixtures("judging")
def test_a_judge_samples_as_its_model_does_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    request = GradingRequest(question="?", references=("yes",), answer="Answer in one word.")
    calls: list[ModelCall] = []
    with serving(ForeignServer("key", model="the-judge")) as server:
        connect(monkeypatch, "judge", server.base_url, "key", "the-judge")
        model = form_config("judged", {"overrides": {}}).model
        with AirflowConnections().judge(model, calls.append, lambda: None) as judge:
            # The server's example of the schema has the first grade, and a quote that the answer happens to have.
            assert grade(judge, request).grade == "correct"
    [body] = server.bodies
    # Anthropic's API takes no temperature, MiniMax none of 0.
    assert ("temperature" in body, body["model"]) == (False, "the-judge")
    assert [(call.role, call.stage) for call in calls] == [("judge", "judge")]


def test_connections_are_looked_up_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Airflow's masker joins a set of secrets, which another thread's new one would change meanwhile.
    looking: list[int] = []
    most: list[int] = []
    get = BaseHook.get_connection

    def slowly(conn_id: str) -> Any:
        looking.append(1)
        most.append(len(looking))
        time.sleep(0.05)
        looking.pop()
        return get(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", slowly)
    connections, model = AirflowConnections(), ModelGroup(target_conn_id="own", optimizer_conn_id="openai")
    with ThreadPoolExecutor(3) as pool:
        for opened in (connections.optimizer, connections.target):
            pool.submit(opened, model, lambda call: None, lambda: None)
        pool.submit(connections.upstream, model)
    assert len(most) >= 3
    assert max(most) == 1
