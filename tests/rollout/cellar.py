"""A benchmark whose items are worlds without an engine: a cellar with a lamp to be found, and worlds that break."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillopt_airflow import benchmarks

NAME = "cellar"
ADAPTER = """
import re

from skillopt_airflow.tasks.protocols import is_won
from skillopt_airflow.core.values.types import Item, ItemFile, Message, Score


class Cellar:
    runs_code = False
    text_columns = ("id",)
    list_columns = ()

    def identity(self, record):
        return record["id"]

    def item(self, record):
        return Item(id=record["id"], public={}, reference={}, files=(ItemFile(name="cellar.txt", path=record["file"]),))

    def world_files(self, contents):
        return {"cellar.txt": contents["cellar.txt"].partition(b"walkthrough")[0]}

    def messages(self, public, skill):
        return (Message(role="system", content=skill), Message(role="user", content="A cellar."))

    def task(self, opening):
        return "Find the lamp. " + self.shown(opening)

    def prompt(self, episode, last_turns):
        recent = episode.turns[-last_turns:] if last_turns else ()
        before = "; ".join(f"{turn.action}: {turn.observation.text}" for turn in recent)
        return f"Turn {len(episode.turns)}. Before: {before}. Now: {self.shown(episode.now)}"

    def shown(self, observation):
        return f"{observation.text} [{', '.join(observation.admissible)}]"

    def action(self, response):
        return response.strip()

    def answer(self, response):
        return response

    def score(self, item, trajectory):
        won = is_won(trajectory.answer)
        return Score(hard=float(won), soft=float(won), feedback=trajectory.answer)


BENCHMARK = Cellar()
"""
WORLD = """
import os
import sys
import time

from skillopt_airflow.tasks.protocols import Observation


class Cellar:
    def __init__(self, text):
        self.depth = int(text)
        self.at = 0
        print("an engine that prints")

    def opening(self):
        return Observation(text="It is dark." + " So dark." * 1000, admissible=("down", "up"))

    def act(self, action):
        if action == "sleep":
            time.sleep(60)
        if action == "die":
            sys.exit("the engine has crashed")
        self.at += {"down": 1, "up": -1}.get(action, 0)
        return Observation(text=f"Step {self.at}.", admissible=("down", "up"), won=self.at == self.depth)


def open_world(files):
    return Cellar(files["cellar.txt"].decode())
"""


@pytest.fixture
def cellar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the benchmark, the only one that there is."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    place = tmp_path / NAME
    place.mkdir()
    for name, text in {"adapter.py": ADAPTER, "worlds.py": WORLD, "benchmark.yaml": "{}\n"}.items():
        (place / name).write_text(text)
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(place))
    return place


def files(depth: str) -> Mapping[str, bytes]:
    """Return what a cellar of a depth is made of."""
    return {"cellar.txt": depth.encode()}
