"""The process of one item's world: `python -m skillopt_airflow.rollout.world_program BENCHMARK`.

It reads a line with the world's files, answers with a line of what is seen, and goes on with a line an action.
The files tell where things are and what the goal is. So they are read once, before the first item begins, and removed;
from then on they are in memory that no other process of the container's user may read.
"""

import base64
import ctypes
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from skillopt_airflow import benchmarks
from skillopt_airflow.tasks.protocols import World

MODULE = "worlds"
"""File of a benchmark's folder that has `open_world`."""
PR_SET_DUMPABLE = 4
"""Number of the option of prctl(2)."""


def take(folder: Path) -> Mapping[int, Mapping[str, bytes]]:
    """Return the content of a folder with a folder an item, by the item's index and the file's name, and remove it.

    It is empty where there is no such folder, because the items are no sessions.
    """
    if not folder.is_dir():
        return {}
    hide_memory()
    taken = {int(item.name): {file.name: file.read_bytes() for file in item.iterdir()} for item in folder.iterdir()}
    shutil.rmtree(folder)
    return taken


def hide_memory() -> None:
    """Close this process to others of its user: its memory, its open files, its environment (ptrace(2), proc(5))."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed, so that worlds would not be sealed")


def main(benchmark: str) -> None:
    """Play one world until nobody acts any more."""
    hide_memory()
    # What an engine prints must not come between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        files = json.loads(sys.stdin.readline())
        contents = {name: base64.b64decode(content) for name, content in files.items()}
        world: World = benchmarks.load_file(benchmark, MODULE).open_world(contents)
        observation = world.opening()
        while True:
            answers.write(observation.model_dump_json() + "\n")
            answers.flush()
            line = sys.stdin.readline()
            if not line:
                return
            observation = world.act(json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
