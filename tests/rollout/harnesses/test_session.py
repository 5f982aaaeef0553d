import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.rollout.harnesses import session
from skillopt_airflow.rollout.harnesses.session import Session, open_session
from skillopt_airflow.rollout.settings import RolloutSettings
from tests.rollout.cellar import NAME, cellar, files
from tests.rollout.single_item import PLAIN

__all__ = ["cellar"]

pytestmark = pytest.mark.usefixtures("cellar")


def played(depth: str, *actions: str, max_turns: int = 10, **session: Any) -> Session:
    """Return a session after some actions; it has ended."""
    settings = RolloutSettings(**PLAIN | {"benchmark": NAME, "max_turns": max_turns, "session": session})

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
