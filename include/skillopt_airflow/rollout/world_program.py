"""The process of one item's world: `python -m skillopt_airflow.rollout.world_program BENCHMARK`.

It reads a line with the world's files, answers with a line of what is seen, and goes on with a line an action.
"""

import base64
import json
import os
import sys

from skillopt_airflow import benchmarks
from skillopt_airflow.core.protocols import World
from skillopt_airflow.rollout.sealed import hide_memory

MODULE = "worlds"
"""File of a benchmark's folder that has `open_world`."""


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
