"""Letting a container's items begin no further ahead than the host, which knows when enough of them ran."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from skillopt_airflow.core.errors import SandboxError

ALLOWANCE = Path("/gateway/allowance")
"""How many items may be begun, as decimal text that the host replaces at once."""
POLL_SECONDS = 0.03
LOOK_SECONDS = 1.0


class Turnstile:
    """Admits items in their order, as many as the host allows."""

    def __init__(self, gateway: str, allowance: Path) -> None:
        self._gateway = gateway
        self._allowance = allowance
        self._allowed = 0

    async def admit(self, index: int) -> None:
        """Return once item `index`, counted from 0, may begin.

        Raises:
            SandboxError: nobody is left who could allow it.
        """
        waited = 0.0
        while index >= self._allowed:
            self._allowed = int(self._allowance.read_bytes())
            if index < self._allowed:
                return
            if waited >= LOOK_SECONDS:
                waited = 0.0
                await self._find_host()
            await asyncio.sleep(POLL_SECONDS)
            waited += POLL_SECONDS

    async def _find_host(self) -> None:
        """A host that was killed leaves its files, but nobody listens; its container must not wait for ever."""
        try:
            if self._gateway.startswith("http://"):
                address = urlsplit(self._gateway)
                _, writer = await asyncio.open_connection(address.hostname, address.port)
            else:
                _, writer = await asyncio.open_unix_connection(self._gateway)
        except OSError as error:
            raise SandboxError(f"nobody allows further items: the model gateway at {self._gateway} is gone") from error
        writer.close()
