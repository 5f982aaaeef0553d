"""A separate S3 server for a measurement or a test."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local import objectstore
from local.home import free_ports
from skillopt_airflow.core.errors import PlatformError

END_SECONDS = 10.0


@contextmanager
def server_in(folder: Path) -> Iterator[str]:
    """Yield the URL of a separate server with its objects in `folder`/s3.

    Raises:
        PlatformError: the server doesn't start.
    """
    own, (port,) = folder / "s3", free_ports(1)
    own.mkdir()
    address, log = f"http://127.0.0.1:{port}", own / "log"
    environment = os.environ | objectstore.own_variables("127.0.0.1", port, own)
    with log.open("wb") as output:
        server = subprocess.Popen(objectstore.COMMAND, env=environment, cwd=own, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + objectstore.START_SECONDS
        while not objectstore.is_ready(address):
            if server.poll() is not None or time.monotonic() > deadline:
                raise PlatformError(f"the S3 server did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
