"""`python -m include.rollout /in /out`: the program inside the sandbox."""

import argparse
import asyncio
from pathlib import Path

from include.rollout.program import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m include.rollout", description="Run the items of a folder.")
    parser.add_argument("input", type=Path, help="folder with settings.json, skill.md and items.jsonl")
    parser.add_argument("output", type=Path, help="folder that gets trajectories.jsonl")
    parser.add_argument("--gateway", type=Path, default=Path("/gateway/model.sock"), help="the gateway's unix socket")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.input, arguments.output, arguments.gateway))
