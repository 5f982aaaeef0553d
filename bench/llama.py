"""A GGUF file behind llama.cpp on loopback, in a separate virtual environment with locked packages."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uv import find_uv_bin

from skillopt_airflow.core.errors import PlatformError

LOCK = Path(__file__).with_name("llama-requirements.txt")
SERVER = Path(__file__).with_name("llama_server.py")
LOG_CHARS = 2_000


def installed(environment: Path) -> Path:
    """Return the Python of a virtual environment that has the locked packages; make it if it's missing.

    Raises:
        PlatformError: uv can't install them; the text has its output.
    """
    python = environment / "bin" / "python"
    made = ["venv", "--allow-existing", "--python", sys.executable, str(environment)]
    filled = ["pip", "install", "--python", str(python), "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
    for arguments in (made, filled):
        done = subprocess.run([find_uv_bin(), "--quiet", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PlatformError(f"{environment}: uv {arguments[0]} failed:\n{done.stderr}")
    return python


@contextmanager
def served(python: Path, weights: Path, log: Path) -> Iterator[str]:
    """Yield the base URL of a server of the model. The server ends with the block, and writes to the log.

    Raises:
        PlatformError: the server doesn't start; the text has the end of its log.
    """
    with log.open("wb") as output:
        server = subprocess.Popen([python, SERVER, weights], stdout=subprocess.PIPE, stderr=output, text=True)
    try:
        assert server.stdout is not None
        address = next((line.strip() for line in server.stdout if line.startswith("http")), "")
        if not address:
            raise PlatformError(f"{weights}: llama.cpp doesn't serve it:\n{log.read_text()[-LOG_CHARS:]}")
        yield f"{address}/v1"
    finally:
        server.kill()
        server.communicate()
