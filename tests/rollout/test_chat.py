import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK
from include.core.types import Status, Trajectory
from include.rollout.chat import ChatHarness
from include.rollout.settings import PublicItem, RolloutSettings
from include.rollout.workspace import ItemFolders
from tests.sandbox.scripted_provider import Asked, Reply, ScriptedProvider, completion, failure

ITEM = PublicItem(id="i-1", public={"question": "Which tower?", "context": "[DOC] Eiffel"})
PLAIN: dict[str, Any] = {
    "benchmark": "searchqa",
    "dialect": "openai-chat",
    "model": "standin-target",
    "max_tokens": 64,
    "concurrency": 1,
    "call_timeout": 5,
    "max_attempts": 1,
}


def run(answer: Callable[[Asked], Reply], **settings: Any) -> tuple[Trajectory, list[Asked]]:
    async def main(base_url: str) -> Trajectory:
        async with ChatHarness(RolloutSettings(**PLAIN | settings), BENCHMARK, base_url) as harness:
            return await harness.run(ITEM, "Be short.", ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0))

    with ScriptedProvider(answer) as provider:
        return asyncio.run(main(provider.base_url.removesuffix("/v1"))), provider.requests


def test_an_item_becomes_one_request_and_its_answer():
    trajectory, requests = run(lambda asked: completion("Hm. <answer>Eiffel</answer>"), temperature=0.0)

    assert trajectory.status is Status.OK
    assert trajectory.item_id == "i-1"
    assert trajectory.answer == "Eiffel"
    assert [message.role for message in trajectory.messages] == ["system", "user", "assistant"]
    assert trajectory.messages[0].content == "Be short."
    assert trajectory.messages[2].content == "Hm. <answer>Eiffel</answer>"
    assert (trajectory.calls, trajectory.prompt_tokens, trajectory.completion_tokens) == (1, 11, 3)
    assert trajectory.started > 0
    (asked,) = requests
    assert asked.path == "/v1/chat/completions"
    assert asked.body["temperature"] == 0.0
    assert 64 in (asked.body.get("max_tokens"), asked.body.get("max_completion_tokens"))


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (completion("", refusal="I will not"), Status.REFUSED, "I will not"),
        (completion("", finish_reason="content_filter"), Status.REFUSED, "content filter"),
        (failure(400, "held back", code="content_filter"), Status.REFUSED, "held back"),
        (failure(401, "who are you"), Status.MODEL_ERROR, "who are you"),
        (failure(500, "broken"), Status.MODEL_ERROR, "broken"),
        (failure(504, "too slow"), Status.TIMEOUT, "too slow"),
        (Reply(200, b"<html>", {"content-type": "text/html"}), Status.MODEL_ERROR, "JSON"),
        (Reply(200, b'{"hello": 1}'), Status.MODEL_ERROR, "Invalid response"),
    ],
)
def test_what_a_provider_does_wrong_becomes_the_status(reply, status, words):
    trajectory, requests = run(lambda asked: reply)

    assert trajectory.status is status
    assert words in trajectory.error
    assert trajectory.answer == ""
    assert [message.role for message in trajectory.messages[:2]] == ["system", "user"]
    assert len(requests) == 1


def test_an_answer_that_never_comes_is_a_timeout():
    release = threading.Event()

    def hang(asked: Asked) -> Reply:
        release.wait(30)
        return completion("late")

    trajectory, _ = run(hang, call_timeout=0.1)
    release.set()

    assert trajectory.status is Status.TIMEOUT


def test_an_empty_answer_is_an_answer():
    trajectory, _ = run(lambda asked: completion(""))
    assert (trajectory.status, trajectory.answer) == (Status.OK, "")


def test_the_responses_dialect():
    document = {
        "id": "r-1",
        "object": "response",
        "created_at": 1,
        "model": "standin-target",
        "status": "completed",
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "output": [
            {
                "type": "message",
                "id": "m-1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "<answer>Eiffel</answer>", "annotations": []}],
            }
        ],
        "usage": {
            "input_tokens": 11,
            "output_tokens": 3,
            "total_tokens": 14,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    trajectory, requests = run(lambda asked: Reply(body=json.dumps(document).encode()), dialect="openai")

    assert requests[0].path == "/v1/responses"
    assert (trajectory.status, trajectory.answer) == (Status.OK, "Eiffel")
    assert (trajectory.prompt_tokens, trajectory.completion_tokens) == (11, 3)
