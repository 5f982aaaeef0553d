"""Airflow's commands, each in a fork of one process: to import Airflow takes longer than all that a command does.

A line of standard input is a command; the exit status is the line that answers it, on standard output.
"""

import gc
import importlib
import os
import shlex
import sys

COMMANDS = (
    "airflow.cli.commands.dag_command",
    "airflow.cli.commands.backfill_command",
    "airflow.serialization.serialized_objects",
)


def main() -> None:
    """Run the commands, one after the other."""
    # What Airflow prints is none of the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for module in COMMANDS:
        importlib.import_module(module)
    airflow = importlib.import_module("airflow.__main__").main
    importlib.import_module("airflow.cli.cli_parser").get_parser()
    importlib.import_module("sqlalchemy.orm").configure_mappers()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.argv = shlex.split(line)
            airflow()
            return
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")


if __name__ == "__main__":
    main()
