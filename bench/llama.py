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


def install(environment: Path) -> Path:
    """Create a virtual environment with the locked packages if it's missing, and return its Python.

    Raises:
        PlatformError: uv failed.
    """
    python = environment / "bin" / "python"
    create = ["venv", "--allow-existing", "--python", sys.executable, str(environment)]
    fill = ["pip", "install", "--python", str(python), "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
    for arguments in (create, fill):
        result = subprocess.run([find_uv_bin(), "--quiet", *arguments], capture_output=True, text=True, check=False)
        if result.returncode:
            raise PlatformError(f"{environment}: uv {arguments[0]} failed:\n{result.stderr}")
    return python


@contextmanager
def serve(python: Path, weights: Path, log: Path) -> Iterator[str]:
    """Run a server of the model until the block ends, and yield its base URL.

    Raises:
        PlatformError: the server doesn't start.
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
