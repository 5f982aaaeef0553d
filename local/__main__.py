"""Command line of the local platform: `python -m local up|down|status|demo`, or `image NAME`."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from local.environment import HOME_VARIABLE
from local.home import ADMIN, PROJECT, Home
from skillopt_airflow.core.errors import ImageMissing, SkillOptError

DEFAULT_HOME = PROJECT / ".local"


def main(arguments: list[str]) -> int:
    """Run one command; 0 if it did what was asked."""
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "demo", "image"])
    parser.add_argument(
        "names", nargs="*", help="of image: sandbox, codex, claude_code or gateway; `up` builds the first"
    )
    parser.add_argument("--home", type=Path, default=DEFAULT_HOME, help="folder of all state (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.names and options.command != "image":
        parser.error(f"{options.command} takes no names")
    home = Home.at(options.home)
    _carry_home(home, arguments)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, _interrupt)
    commands = {"up": _up, "down": _down, "status": _status, "demo": _demo}
    try:
        if options.command == "image":
            return _image(home, options.names)
        return commands[options.command](home)
    except SkillOptError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _carry_home(home: Home, arguments: list[str]) -> None:
    """Start this program again with the home in its environment, so that `down` finds it and its children."""
    if os.environ.get(HOME_VARIABLE) != str(home.root):
        variables = {**os.environ, HOME_VARIABLE: str(home.root)}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        os.execve(sys.executable, [sys.executable, "-m", "local", *arguments], variables)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _up(home: Home) -> int:
    from local import platform, shell_commands
    from local.environment import airflow_url, s3_url

    settings = platform.up(home)
    print(f"Airflow    {airflow_url(settings)}  user {ADMIN}, password {settings.password}")
    print(f"S3         {s3_url(settings)}")
    print(f"Commands   {shell_commands.paths(home)}, which are in the platform's environment")
    print(f"State      {home.root} (login and ports: {home.settings_file.name}, logs: {home.logs.name}/)")
    return 0


def _down(home: Home) -> int:
    from local import platform

    platform.down(home)
    print(f"The platform of {home.root} is stopped; its data stays.")
    return 0


def _status(home: Home) -> int:
    from local import airflow_services, platform, shell_commands
    from local.environment import airflow_url

    states = platform.states(home)
    for name, state in states.items():
        print(f"{name:15}{state}")
    if not home.settings_file.exists():
        return 1
    settings = home.read()
    for name, state in airflow_services.health(settings).items():
        print(f"{name:15}{state} (as Airflow says)")
    print(f"{'UI':15}{airflow_url(settings)}  user {ADMIN}, password {settings.password}")
    print(f"{'commands':15}{shell_commands.paths(home)}")
    return int("stopped" in states.values())


def _image(home: Home, names: Sequence[str]) -> int:
    from local import engine, image

    unknown = sorted(set(names) - set(image.RECIPES))
    if unknown or not names:
        raise ImageMissing(f"no image {', '.join(unknown) or 'named'}: choose from {', '.join(image.RECIPES)}")
    image.ensure(home.root, engine.ensure(home.root, print), print, names)
    print(f"Built {', '.join(image.RECIPES[name].image for name in names)}")
    return 0


def _demo(home: Home) -> int:
    from local import platform
    from local.demo import run

    return run(home, platform.up(home))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: it would join a thread that still waits for an image build of an engine that is not ours.
    os._exit(code)
