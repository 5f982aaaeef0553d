"""The world's server: slots, latencies, and answers that are the same again."""

from concurrent.futures import ThreadPoolExecutor
from statistics import mean, median
from typing import Any

import httpx
import pytest

from bench.world_model import MANY_EDITS, record
from bench.world_server import SIGMA, WorldServer
from local.served import served
from local.standin.economy import RULES, World
from skillopt_airflow.optimizer.sections import prompt_of, section

WORLD = World(7, economy=MANY_EDITS)


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


def test_equal_requests_are_draws_of_their_own() -> None:
    item_id = next(f"val-{index}" for index in range(1000) if WORLD.nature(f"val-{index}").chance == 0.5)
    with served(WorldServer(WORLD, 0.0)) as server:
        said = [ask(server, "", question(item_id))["content"] for _ in range(12)]
    assert [mark(item_id) in text for text in said] == [WORLD.right(item_id, "", draw) for draw in range(1, 13)]
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
