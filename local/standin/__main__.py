"""`python -m local.standin --port N [--host 127.0.0.1]`."""

import argparse
from contextlib import suppress

from local.standin.server import StandInServer


def main() -> None:
    """Serve until interrupted; print the base URL first."""
    parser = argparse.ArgumentParser(prog="python -m local.standin", description="Offline stand-in model server.")
    parser.add_argument("--port", type=int, required=True, help="port; 0 for any free port")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    arguments = parser.parse_args()
    with StandInServer(arguments.host, arguments.port) as server, suppress(KeyboardInterrupt):
        print(server.base_url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
