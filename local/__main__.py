"""Command line of the local platform: `python -m local` up, down, status, demo, image and try."""

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from local.environment import HOME_VARIABLE, inherited, own_variables
from local.home import ADMIN, NO_WORKERS, PROJECT, Home, Workers
from skillopt_airflow.core.errors import ImageMissing, PlatformError, SkillOptError
from skillopt_airflow.core.values.types import DATA_SPLITS, Split

DEFAULT_HOME = PROJECT / ".local"
CELERY_WORKERS = 3
TRY = (
    "Run a few items of a benchmark with the real harness and model gateway, and print prompts, replies, scores, and "
    "cost, without Airflow, S3, or a database. Uses the model of AIRFLOW_CONN_SKILLOPT_TARGET, else the offline "
    "stand-in. If the model's code runs (runs_code, agent CLIs), each item runs in a sandbox container, which needs a "
    "Docker engine. Otherwise the rollout program is a child process."
)


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    home = Home.at(options.home)
    _carry_home(home, arguments)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    try:
        return int(options.run(home, options))
    except SkillOptError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    folder: dict[str, Any] = {"type": Path, "help": f"folder for all state (default: {DEFAULT_HOME})"}
    parser.add_argument("--home", default=DEFAULT_HOME, **folder)
    # No default here: it would override a --home before the command.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--home", default=argparse.SUPPRESS, **folder)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    started = commands.add_parser("up", parents=[common], help="start the platform")
    started.add_argument("--executor", choices=["local", "celery"], default="local", help="default: %(default)s")
    started.add_argument("--workers", type=_positive, help=f"number of Celery workers (default: {CELERY_WORKERS})")
    started.add_argument(
        "--engines", type=_positive, help="number of Celery workers that use the Docker engine (default: all)"
    )
    started.set_defaults(run=_up)
    for name, run, text in (
        ("down", _down, "stop the platform; keeps its data"),
        ("status", _status, "show services and URLs"),
        ("demo", _demo, "start the platform and train the sample benchmark"),
    ):
        commands.add_parser(name, parents=[common], help=text).set_defaults(run=run)
    images = commands.add_parser("image", parents=[common], help="build images")
    images.add_argument(
        "names", nargs="*", help="sandbox (built by `up`), codex, claude_code, alfworld, gateway, airflow"
    )
    images.add_argument(
        "--base", default="", help="base image of those that don't extend the sandbox image (default: Python's image)"
    )
    images.set_defaults(run=_image)
    _add_try(commands.add_parser("try", parents=[common], help=TRY, description=TRY))
    return parser


def _add_try(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("benchmark", help="folder in benchmarks/")
    parser.add_argument(
        "--items", type=_positive, default=3, help="number of items, from the first (default: %(default)s)"
    )
    parser.add_argument("--split", choices=[*DATA_SPLITS], type=Split, default=Split.TRAIN, help="default: %(default)s")
    parser.add_argument("--skill", type=Path, help="Markdown file with a skill (default: the seed skill)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a knob, such as model.max_turns=3"
    )
    parser.set_defaults(run=_try)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def _carry_home(home: Home, arguments: list[str]) -> None:
    """Restart this program with the home in its environment, so that `down` finds it and its children."""
    if os.environ.get(HOME_VARIABLE) != str(home.root):
        variables = inherited(os.environ) | own_variables(home, os.environ)
        os.execve(sys.executable, [sys.executable, "-m", "local", *arguments], variables)


def _up(home: Home, options: argparse.Namespace) -> int:
    from local import platform, shell_commands
    from local.environment import airflow_url, s3_url, uses_stand_in

    settings = platform.up(home, _workers(options))
    print(f"Airflow    {airflow_url(settings)}  user {ADMIN}, password {settings.password}")
    if uses_stand_in(os.environ):
        print("Models     the offline stand-in (not a language model) for connections that you don't export")
    print(f"S3         {s3_url(settings)}")
    print(f"Commands   {shell_commands.paths(home)}, in the platform's environment")
    print(f"State      {home.root} (login and ports: {home.settings_file.name}, logs: {home.logs.name}/)")
    return 0


def _workers(options: argparse.Namespace) -> Workers:
    if options.executor != "celery":
        if options.workers is not None or options.engines is not None:
            raise PlatformError(
                "WORKERS and ENGINES need Celery, but EXECUTOR is local. Run `make up EXECUTOR=celery`, or remove them"
            )
        return NO_WORKERS
    workers = CELERY_WORKERS if options.workers is None else options.workers
    return Workers(workers, workers if options.engines is None else min(workers, options.engines))


def _down(home: Home, _: Any) -> int:
    from local import platform

    platform.down(home)
    print(f"Stopped the platform of {home.root}. Its data is kept.")
    return 0


def _status(home: Home, _: Any) -> int:
    from local import airflow_services, platform, shell_commands
    from local.environment import airflow_url

    states = platform.states(home)
    for name, state in states.items():
        print(f"{name:15}{state}")
    if not home.settings_file.exists():
        return 1
    settings = home.read()
    for name, state in airflow_services.health(settings).items():
        print(f"{name:15}{state} (from Airflow)")
    print(f"{'UI':15}{airflow_url(settings)}  user {ADMIN}, password {settings.password}")
    print(f"{'commands':15}{shell_commands.paths(home)}")
    return int("stopped" in states.values())


def _image(home: Home, options: argparse.Namespace) -> int:
    from local import engine, image

    names: list[str] = options.names
    unknown = sorted(set(names) - set(image.RECIPES))
    if unknown or not names:
        raise ImageMissing(f"NAME = {', '.join(unknown)}: unknown image. Available: {', '.join(image.RECIPES)}")
    image.ensure(home.root, engine.ensure(home.root, print), print, names, options.base)
    print(f"Built {', '.join(image.RECIPES[name].image for name in names)}")
    return 0


def _demo(home: Home, _: Any) -> int:
    from local import platform
    from local.demo import run

    return run(home, platform.up(home))


def _try(home: Home, options: argparse.Namespace) -> int:
    # Airflow reads this on import. The rows and the error show all problems.
    os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"
    logging.disable(logging.WARNING)
    from local.try_benchmark import run

    return run(home, options.benchmark, options.items, options.split, options.skill, options.set)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit, which joins a thread that may still wait for another engine's image build.
    os._exit(code)
