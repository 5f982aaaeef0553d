"""The model gateway as a separate program, for a remote Docker engine or a pod.

`python -m skillopt_airflow.gateway.serve --listen 0.0.0.0:8080 | unix:/path [--config FILE]` reads one JSON document,
`ServeConfig`, from the file or from standard input. It writes one JSON line per `ModelCall` to standard output and
messages to standard error. It stops on SIGTERM or SIGINT. If the document was a whole line of standard input, it also
stops when that input ends, so that it doesn't outlive its parent. Its last line is `ENDED`.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from skillopt_airflow.core.errors import ConfigError, SandboxError
from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.gateway.model_gateway import Address, ModelGateway
from skillopt_airflow.gateway.remaining_budget import ENDED, GatewaySettings
from skillopt_airflow.gateway.upstream import Upstream


class ServeConfig(GatewaySettings):
    """The program's configuration, with secrets. `backends.export_upstream` writes the upstream."""

    upstream: Upstream
    proxies: Mapping[str, str] = Field(default_factory=dict)
    """The parent's proxy variables."""


def main() -> None:
    """Serve until a signal arrives. On an error, exit with status 2 and the reason."""
    parser = argparse.ArgumentParser(prog="python -m skillopt_airflow.gateway.serve", description="The model gateway.")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT | unix:PATH")
    parser.add_argument("--config", type=Path, metavar="FILE", help="standard input when unset")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        address = _address(options.listen)
        document = sys.stdin.buffer.readline() if options.config is None else options.config.read_bytes()
        config = ServeConfig.model_validate_json(document)
        _serve(config, address, lifeline=options.config is None and document.endswith(b"\n"))
    except ValidationError as error:
        # The error itself quotes the document's secrets.
        parser.exit(2, f"the gateway's document: {flaws(error)}\n")
    except (ConfigError, SandboxError, OSError) as error:
        parser.exit(2, f"{error}\n")


def _serve(config: ServeConfig, address: Path | tuple[str, int], *, lifeline: bool) -> None:
    stopped = threading.Event()
    if lifeline:
        threading.Thread(target=_wait_for_eof, args=(stopped,), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread, because the signal may interrupt this one while it holds the event's lock.
        signal.signal(number, lambda *_: threading.Thread(target=stopped.set).start())
    os.environ.update(config.proxies)
    settings = {name: value for name, value in config if name not in ("upstream", "proxies")}
    if isinstance(address, Path) and address.is_socket() and config.allowance.is_limited:
        raise SandboxError(f"{address}: left by a killed gateway, which may have spent its part of the budget")
    with ModelGateway(config.upstream, address, on_call=lambda call: _write_line(call.model_dump_json()), **settings):
        print("listening", file=sys.stderr, flush=True)  # noqa: T201 - the parent waits for this line
        stopped.wait()
    _write_line(ENDED.decode())


def _wait_for_eof(stopped: threading.Event) -> None:
    # Bypass sys.stdin, whose lock the interpreter needs at exit.
    while os.read(0, 4096):
        pass
    stopped.set()


def _write_line(line: str) -> None:
    # A single write, so that lines of different threads don't mix.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _address(text: str) -> Address:
    if text.startswith("unix:"):
        return Path(text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--listen {text}: expected HOST:PORT or unix:PATH")
    return host, int(port)


if __name__ == "__main__":
    main()
