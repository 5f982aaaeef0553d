"""The process of one item's world: `python -m skillopt_airflow.rollout.world_program BENCHMARK`.

It reads a line with the world's files, writes the first observation, and then one observation per line with an action.
The files contain the goal. They are therefore read and removed before the first item begins, and kept in memory that
no other process of the container's user can read.
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
"""Module of a benchmark's folder with `open_world`."""
PR_SET_DUMPABLE = 4


def take_sealed_files(folder: Path) -> Mapping[int, Mapping[str, bytes]]:
    """Read and remove the files of all items' worlds. Return them by the item's index and the file's name.

    Without sessions, there is no such folder and the result is empty.
    """
    if not folder.is_dir():
        return {}
    hide_memory()
    files = {int(item.name): {file.name: file.read_bytes() for file in item.iterdir()} for item in folder.iterdir()}
    shutil.rmtree(folder)
    return files


def hide_memory() -> None:
    """Hide memory, open files and environment from other processes of the same user (ptrace(2), proc(5))."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed, so other processes could read the worlds")


def main(benchmark: str) -> None:
    """Run one world until standard input ends."""
    hide_memory()
    # Engines may print to standard output, which is for observations only.
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
