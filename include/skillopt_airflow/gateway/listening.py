"""The gateway's listening socket, and connections that cannot block it."""

import asyncio
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from skillopt_airflow.core.errors import SandboxError

BACKLOG = 1024
MAX_CONNECTIONS = max(256, min(2048, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
"""A quarter of the descriptors that the process may have: a call takes two, and the task needs some of its own."""
HEAD_SECONDS = 60.0
"""Time limit from the first byte, or from the connection, to a whole request head."""
STALL_SECONDS = 60.0
"""Time limit for a client to read on once the buffers are full."""


class GuardedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 with limits on the number of connections and on how long each may stall.

    A client may connect and say nothing, send a head byte by byte, or never read its answer: each of these would
    otherwise keep a descriptor of the task's process for as long as the container lives.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _made = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Abort a connection if there are too many: the oldest without a whole request, or this one."""
        super().connection_made(transport)
        self._made = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            others = [other for other in self.connections if isinstance(other, GuardedProtocol) and other.is_sending()]
            min(others, key=lambda other: other._made, default=self).transport.abort()
        self._watch_head()

    def is_sending(self) -> bool:
        """Return whether the request is still incomplete."""
        return not self._has_head() or self.cycle.more_body

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request head has to be complete in time."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # Garbage after a request that was already answered cannot be reported any more.
            self.transport.abort()
            return
        self._watch_head()

    def pause_writing(self) -> None:
        """Start the timer of a client that reads too slowly."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        super().connection_lost(exc)
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()

    def _watch_head(self) -> None:
        if self._has_head():
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_due)

    def _head_is_due(self) -> None:
        if not self._has_head():
            self.transport.abort()

    def _has_head(self) -> bool:
        """Return whether a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete


def listen(address: Path | tuple[str, int]) -> socket.socket:
    """Listen on a unix socket, to which any user of a container may connect, or on a host and port.

    A socket's file that a killed gateway left behind is replaced.

    Raises:
        SandboxError: the address cannot be had, for example because its path is too long.
    """
    listener = socket.socket(socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if isinstance(address, Path):
            _remove_stale(address)
            listener.bind(str(address))
            address.chmod(0o666)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SandboxError(f"the model gateway cannot listen at {address}: {error}") from error
    return listener


def _remove_stale(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
