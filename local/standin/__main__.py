"""`python -m local.standin --port N [--host 127.0.0.1]`."""

import argparse
from contextlib import suppress

from local.standin.server import StandInServer


def main() -> None:
    """Serve until interrupted; the first line on standard output is the base URL."""
    parser = argparse.ArgumentParser(prog="python -m local.standin", description="Offline stand-in model server.")
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    arguments = parser.parse_args()
    with StandInServer(arguments.host, arguments.port) as server, suppress(KeyboardInterrupt):
        print(server.base_url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
