"""The model gateway as a program of its own, for where it cannot run inside the task: beside an engine that is far
away, or in a pod.

`python -m skillopt_airflow.gateway.serve --listen 0.0.0.0:8080 | unix:/path [--config FILE]` reads one JSON document,
`ServeConfig`, from the file or from standard input. It writes one JSON line a `ModelCall` to standard output and
messages to standard error. It ends by SIGTERM or SIGINT; after a document that was a whole line of standard input also
when that input ends, so that it does not outlive whoever started it.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError, SandboxError
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.gateway.gateway_settings import GatewaySettings
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.upstream import Upstream


class ServeConfig(GatewaySettings):
    """The program's configuration, which holds secrets. `backends.handed_over` writes the upstream."""

    upstream: Upstream


def main() -> None:
    """Serve until a signal says to stop; exit with status 2 and a reason if that is impossible."""
    parser = argparse.ArgumentParser(prog="python -m skillopt_airflow.gateway.serve", description="The model gateway.")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT | unix:PATH")
    parser.add_argument("--config", type=Path, metavar="FILE", help="standard input when unset")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        address = _address(given.listen)
        document = sys.stdin.buffer.readline() if given.config is None else given.config.read_bytes()
        _serve(_read(document), address, lifeline=given.config is None and document.endswith(b"\n"))
    except (ConfigError, SandboxError, OSError) as error:
        parser.exit(2, f"{error}\n")


def _serve(config: ServeConfig, address: Path | tuple[str, int], *, lifeline: bool) -> None:
    stopped = threading.Event()
    if lifeline:
        threading.Thread(target=_stop_at_the_end_of_input, args=(stopped,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    settings = {name: value for name, value in config if name != "upstream"}
    with ModelGateway(config.upstream, address, on_call=_tell, **settings):
        print("listening", file=sys.stderr, flush=True)  # noqa: T201 - whoever started it waits for this line
        stopped.wait()


def _stop_at_the_end_of_input(stopped: threading.Event) -> None:
    # Not through sys.stdin, whose lock the interpreter needs at exit.
    while os.read(0, 4096):
        pass
    stopped.set()


def _tell(call: ModelCall) -> None:
    print(call.model_dump_json(), flush=True)  # noqa: T201 - the program's output


def _read(document: bytes) -> ServeConfig:
    try:
        return ServeConfig.model_validate_json(document)
    except ValidationError as error:
        # The values are left out: a key may be among them.
        places = [".".join(map(str, line["loc"])) + f": {line['msg']}" for line in error.errors(include_input=False)]
        raise ConfigError(f"the gateway's document: {'; '.join(places)}") from None


def _address(text: str) -> Path | tuple[str, int]:
    if text.startswith("unix:"):
        return Path(text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--listen {text}: expected HOST:PORT or unix:PATH")
    return host, int(port)


if __name__ == "__main__":
    main()
