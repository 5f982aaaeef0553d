"""`python -m skillopt_airflow.rollout /in /out`, the program inside the sandbox."""

import argparse
import asyncio
from pathlib import Path

from skillopt_airflow.rollout.program import CORPUS, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m skillopt_airflow.rollout", description="Run the items of a folder."
    )
    parser.add_argument("input", type=Path, help="folder with settings.json, skill.md, items.jsonl and files")
    parser.add_argument("output", type=Path, help="folder for trajectories.jsonl and the target's files")
    parser.add_argument("--gateway", default="/gateway/model.sock", metavar="PATH | http://HOST:PORT")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of documents, if the run has a corpus")
    options = parser.parse_args()
    asyncio.run(run(options.input, options.output, options.gateway, options.corpus))
