"""The world of many cases, and its server: slots, latencies, and answers that are the same again."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import Any

import httpx
import pytest

from bench.world_model import FEW_EDITS, MANY_EDITS, BenchEconomy, record, stand_in, write_items
from bench.world_server import SIGMA, WorldServer
from local.served import served
from local.standin import chat_wire
from local.standin.economy import RULES, World
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.optimizer.sections import prompt_of, section
from skillopt_airflow.training.report.history import history_of
from tests.training import in_process

WORLD = World(7, economy=MANY_EDITS)
STAND_IN = stand_in(WORLD)


@pytest.mark.parametrize("economy", [MANY_EDITS, FEW_EDITS], ids=lambda economy: economy.name)
def test_the_shares_of_the_items_are_those_of_the_world(economy: BenchEconomy) -> None:
    natures = [World(7, economy=economy).nature(f"test-{index}") for index in range(5000)]
    assert {nature.rule for nature in natures} - {""} == {*RULES[: economy.rules]}
    assert sum(bool(nature.rule) for nature in natures) / 5000 == pytest.approx(economy.needs_rule, abs=0.02)


def test_another_seed_has_other_answers() -> None:
    assert record("val-1", 8)["answers"] != record("val-1", 7)["answers"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_training_learns_rules_and_rejects_some_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_items(tmp_path, {Split.TRAIN: 64, Split.VAL: 40, Split.TEST: 20}, seed=7)
    monkeypatch.setattr(in_process, "stand_in", answered)
    training = in_process.Training.of(
        data__uri=str(tmp_path),
        train__steps_per_epoch=4,
        train__batch_size=16,
        evaluation__val_limit=40,
        evaluation__test_limit=20,
    )
    training()
    history = history_of(training.run)
    assert history.best.score > history.seed.score
    assert sum(rule in training.skill() for rule in RULES) >= 2
    assert {"accept_new_best", "reject"} <= set(training.actions())
    assert not [fallback for moment in history.moments for fallback in moment.fallbacks]


def answered(request: str) -> str:
    message: dict[str, Any] = chat_wire.complete(json.loads(request), STAND_IN.reply)["choices"][0]["message"]
    return json.dumps(message)


def ask(server: WorldServer, skill: str, user: str, *tools: str) -> dict[str, Any]:
    body = {
        "model": "world",
        "messages": [{"role": "system", "content": skill}, {"role": "user", "content": user}],
        "tools": [{"type": "function", "function": {"name": tool}} for tool in tools],
    }
    answer = httpx.post(f"{server.base_url}/chat/completions", json=body, trust_env=False, timeout=60)
    message: dict[str, Any] = answer.raise_for_status().json()["choices"][0]["message"]
    return message


def question(item_id: str) -> str:
    return f"Question: {record(item_id, 7)['question']}"


def mark(item_id: str) -> str:
    return str(record(item_id, 7)["answers"][0])  # type: ignore[index]


def test_no_more_calls_than_slots_are_answered_at_a_time() -> None:
    with served(WorldServer(WORLD, 0.05, slots=2)) as server, ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda index: ask(server, "", question(f"val-{index}")), range(16)))
    assert server.most_at_once == 2


def test_the_latencies_are_lognormal_around_the_mean() -> None:
    with served(WorldServer(WORLD, 3.0)) as server:
        drawn = [server.latency(str(index)) for index in range(20_000)]
        assert drawn == [server.latency(str(index)) for index in range(20_000)]
    assert abs(mean(drawn) / 3.0 - 1) < 0.02
    # The median of a lognormal lies below its mean, by half the variance of the logarithm.
    assert abs(median(drawn) / 3.0 - 2.718281828 ** (-(SIGMA**2) / 2)) < 0.02


@pytest.mark.nightly
def test_the_score_of_a_skill_is_that_of_the_world() -> None:
    skill, items = "\n".join(RULES[:5]), [f"val-{index}" for index in range(40)]
    with served(WorldServer(WORLD, 0.0)) as server:
        said = [ask(server, skill, question(item_id))["content"] for item_id in items]
    expected = [WORLD.right(item_id, skill, 1) for item_id in items]
    assert [mark(item_id) in text for item_id, text in zip(items, said, strict=True)] == expected
    assert set(expected) == {True, False}


def test_equal_requests_are_samples_of_their_own() -> None:
    item_id = next(f"val-{index}" for index in range(1000) if WORLD.nature(f"val-{index}").chance == 0.5)
    with served(WorldServer(WORLD, 0.0)) as server:
        said = [ask(server, "", question(item_id))["content"] for _ in range(12)]
    assert [mark(item_id) in text for text in said] == [WORLD.right(item_id, "", sample) for sample in range(1, 13)]
    assert len(set(said)) == 2


def test_it_answers_a_stage_of_the_optimizer_as_a_tool_call_and_counts_its_latency() -> None:
    with served(WorldServer(WORLD, 0.01)) as server:
        message = ask(server, "", prompt_of(section("skill", "# Marks")), "preflight_result")
        assert message["tool_calls"][0]["function"]["name"] == "preflight_result"
        assert server.busy_seconds > 0


def test_a_malformed_request_takes_no_slot() -> None:
    with served(WorldServer(WORLD, 0.01)) as server:
        answer = httpx.post(f"{server.base_url}/chat/completions", json={"messages": 1}, trust_env=False)
        assert answer.status_code == 400
        assert server.busy_seconds == 0.0
