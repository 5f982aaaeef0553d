"""A household of ALFWorld in TextWorld's PDDL engine."""

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
"""A command without effect."""


class Household:
    def __init__(self, game: bytes) -> None:
        _prepare_imports()
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        self._engine = AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))
        self._engine.load(json.loads(game))

    def opening(self) -> Observation:
        return _observation(self._engine.reset())

    def act(self, action: str) -> Observation:
        state, _, _ = self._engine.step(action)
        return _observation(state)


def open_world(files: Mapping[str, bytes]) -> Household:
    return Household(files[GAME])


def _observation(state: Mapping[str, object]) -> Observation:
    commands = state["admissible_commands"]
    assert isinstance(commands, list)
    admissible = tuple(command for command in commands if command != NOT_LISTED)
    return Observation(text=str(state["feedback"]).strip(), admissible=admissible, won=bool(state["won"]))


def _prepare_imports() -> None:
    # ALFWorld creates a data folder on import, and the home folder may be read-only.
    os.environ.setdefault("ALFWORLD_DATA", tempfile.gettempdir())
    # TextWorld imports a Z-machine interpreter, unused here, for the names of two warnings.
    jericho = ModuleType("jericho")
    vars(jericho).update(UnsupportedGameWarning=UserWarning, TruncatedInputActionWarning=UserWarning)
    sys.modules.setdefault("jericho", jericho)
    # The planner copies its library per game to a folder without execute permission. One process plays one game.
    planner = vars(import_module("fast_downward.interface"))
    planner["shutil"] = SimpleNamespace(copyfile=lambda *_: None)
    planner["cdll"] = SimpleNamespace(LoadLibrary=lambda _: CDLL(planner["DOWNWARD_LIB_PATH"]))
