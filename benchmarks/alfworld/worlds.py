"""A household of ALFWorld, played by TextWorld's engine for games in PDDL."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from ctypes import CDLL
from importlib import import_module
from types import ModuleType, SimpleNamespace

from skillopt_airflow.tasks.protocols import Observation

from .adapter import GAME

NOT_LISTED = "help"
"""The one command of the games that does nothing."""


class Household:
    """One game."""

    def __init__(self, game: bytes) -> None:
        _prepare_imports()
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        self._engine = AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))
        self._engine.load(json.loads(game))

    def opening(self) -> Observation:
        """Return the room, and the task."""
        return _observation(self._engine.reset())

    def act(self, action: str) -> Observation:
        """Return what a command brings; nothing happens at one that is not admissible."""
        state, _, _ = self._engine.step(action)
        return _observation(state)


def open_world(files: Mapping[str, bytes]) -> Household:
    """Return the household of an item's files."""
    return Household(files[GAME])


def _observation(state: Mapping[str, object]) -> Observation:
    commands = state["admissible_commands"]
    assert isinstance(commands, list)
    admissible = tuple(command for command in commands if command != NOT_LISTED)
    return Observation(text=str(state["feedback"]).strip(), admissible=admissible, won=bool(state["won"]))


def _prepare_imports() -> None:
    # ALFWorld makes a folder for data as it is imported; the home folder may not be writable.
    os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())
    # TextWorld imports an interpreter of Z-machine games, which ALFWorld has none of, for two names in its warnings.
    absent = ModuleType("jericho")
    vars(absent).update(UnsupportedGameWarning=UserWarning, TruncatedInputActionWarning=UserWarning)
    sys.modules.setdefault("jericho", absent)
    # The planner loads a copy of its library for each game, where the sandbox executes nothing. A process has one game.
    planner = vars(import_module("fast_downward.interface"))
    planner["shutil"] = SimpleNamespace(copyfile=lambda *_: None)
    planner["cdll"] = SimpleNamespace(LoadLibrary=lambda _: CDLL(planner["DOWNWARD_LIB_PATH"]))
