import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.rollout.harnesses import session
from skillopt_airflow.rollout.harnesses.chat import ChatHarness
from skillopt_airflow.rollout.harnesses.session import Session, open_session
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from tests.gateway.scripted_provider import Asked, Reply, completion, failure
from tests.rollout.cellar import NAME, cellar, files
from tests.rollout.single_item import PLAIN, run_item

__all__ = ["cellar"]

pytestmark = pytest.mark.usefixtures("cellar")


def played(depth: str, *actions: str, max_turns: int = 10) -> Session:
    """Return a session after some actions; it has ended."""
    settings = RolloutSettings(**PLAIN | {"benchmark": NAME, "max_turns": max_turns})

    async def play() -> Session:
        async with open_session(settings, files(depth)) as session:
            for action in actions:
                await session.act(action)
            return session

    return asyncio.run(play())


def test_a_session_goes_on_until_the_goal_is_reached_or_its_turns_are_over():
    session = played("2", "down", "north", "down")
    assert [turn.observation.text for turn in session.episode.turns] == ["Step 1.", "Step 1.", "Step 2."]
    assert session.over
    assert session.episode.outcome == "won after 3 actions"
    ended = played("5", "down", "down", max_turns=2)
    assert (ended.over, ended.episode.outcome) == (True, "not won after 2 actions")


def test_a_long_observation_is_cut_to_size(monkeypatch):
    monkeypatch.setattr(session, "OBSERVATION_CHARS", 100)
    opening = played("1").episode.opening
    assert len(opening.text) == 100
    assert "characters left out" in opening.text
    assert opening.admissible == ("down", "up")


def test_a_world_that_does_not_open_says_what_happened():
    with pytest.raises(SandboxError, match="invalid literal for int"):
        played("deep")


def test_no_process_is_left():
    session = played("3", "down")
    assert session._process.returncode is not None
    folders = [folder for folder in Path("/proc").glob("[0-9]*/stat") if f" {os.getpid()} " in folder.read_text()]
    assert not [one for one in folders if b"world_program" in (one.parent / "cmdline").read_bytes()]


__all__ = ["cellar"]

ITEM = PublicItem(id="i-1", public={})


def play(replies: list[Reply], depth: str = "2", **settings: Any) -> tuple[Trajectory, list[Asked]]:
    left = iter(replies)
    chosen = RolloutSettings(**PLAIN | {"benchmark": NAME, "max_turns": 5} | settings)
    harness = partial(ChatHarness, chosen, benchmarks.load(NAME))
    return run_item(lambda asked: next(left), harness, ITEM, Path("/nowhere"), files(depth))


def test_each_action_is_asked_for_afresh_with_the_last_turns():
    replies = [completion(action) for action in ("north", "down", "up", "down", "down")]
    trajectory, asked = play(replies)

    assert (trajectory.status, trajectory.answer) == (Status.OK, "won after 5 actions")
    assert [len(one.body["messages"]) for one in asked] == [2] * 5
    assert asked[3].body["messages"][0]["content"] == "Be short."
    assert (
        asked[3].body["messages"][1]["content"] == "Turn 3. Before: down: Step 1.; up: Step 0.. Now: Step 0. [down, up]"
    )
    assert trajectory.calls == 5
    assert trajectory.completion_tokens == 15


def test_the_trajectory_reads_as_one_conversation():
    trajectory, _ = play([completion("down"), completion("down")])
    roles = [message.role for message in trajectory.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert trajectory.messages[3].content.startswith("Step 1.")


def test_a_call_that_fails_is_no_action():
    trajectory, asked = play([completion("down"), failure(401, "who are you")])
    assert (trajectory.status, trajectory.answer) == (Status.MODEL_ERROR, "")
    assert "who are you" in trajectory.error
    assert len(asked) == trajectory.calls == 2
