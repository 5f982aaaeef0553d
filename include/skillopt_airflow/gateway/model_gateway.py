"""The gateway's server: forwards calls to one model and adds the credentials."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn
from anyio.from_thread import start_blocking_portal
from anyio.to_thread import current_default_thread_limiter

from skillopt_airflow.core.errors import SandboxError, SkillOptError
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.gateway.app import GatewayApp
from skillopt_airflow.gateway.remaining_budget import GatewaySettings
from skillopt_airflow.gateway.retries import Provider
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import WebSearch

Address = Path | tuple[str, int]
"""The path of a unix socket, or a host and a port."""

BACKLOG = 1024
SPARE_CONNECTIONS = 16
"""Connections per socket, in addition to two per item: an agent CLI makes several calls at the same time."""
MAX_HEAD_BYTES = 32 * 1024
CLOSING_SECONDS = 1
IDLE_SECONDS = 75
"""Idle time before a connection is closed. Longer than the clients' own, so that they never use a closed one."""


class ModelGateway:
    """An HTTP server that forwards one model's calls to its provider or the fallbacks.

    The sockets share the provider, the rate limits, the budget and the search. Each socket has its own limits for
    connections and request bytes, so that no client can use up another one's.

    Args:
        address: address to listen at while it runs, in addition to those of `listening`.
        on_call: called from the server's thread for every call that was sent to the provider.
        settings: the fields of `GatewaySettings`.
    """

    def __init__(
        self,
        upstream: Upstream,
        address: Address | None = None,
        *,
        on_call: Callable[[ModelCall], None],
        search: WebSearch | None = None,
        **settings: Any,
    ) -> None:
        self._settings = GatewaySettings(**settings)
        self._upstream = upstream
        self._address = address
        self._on_call = on_call
        self._search = search
        self._serving: set[Future[None]] = set()
        self._checking = asyncio.Lock()

    def __enter__(self) -> Self:
        """Start, and listen at the address if there is one.

        Raises SandboxError if the address is unavailable, or the provider's client cannot be created.
        """
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal(name="model-gateway"))
            try:
                self._provider = self._portal.call(self._open_provider)
            except Exception as failure:
                reason = str(failure) if isinstance(failure, SkillOptError) else repr(failure)
                raise SandboxError(f"the model gateway did not start: {reason}") from failure
            stack.callback(self._portal.call, self._provider.aclose)
            stack.callback(lambda: wait(self._serving.copy()))
            if self._address is not None:
                stack.enter_context(self.listening(self._address, self._settings.share))
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    @contextmanager
    def listening(self, address: Address, items: int) -> Iterator[None]:
        """Accept calls at another address within the block, for a sandbox with that many items at the same time.

        Raises SandboxError if the address is unavailable.
        """
        listener = listen(address)
        shared = (self._upstream, self._provider, self._settings, self._on_call, self._checking, self._search)
        server = uvicorn.Server(_config(GatewayApp(*shared), SPARE_CONNECTIONS + 2 * items))
        serving = self._portal.start_task_soon(server.serve, [listener])
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        try:
            yield
        finally:
            server.should_exit = True
            if isinstance(address, Path):
                address.unlink(missing_ok=True)

    async def _open_provider(self) -> Provider:
        # Blocking clients, such as Bedrock's, need one of these threads per call.
        threads = current_default_thread_limiter()
        threads.total_tokens = max(threads.total_tokens, self._settings.share)
        return Provider(self._upstream, self._settings)


def _config(app: GatewayApp, connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )


def listen(address: Address) -> socket.socket:
    """Listen at an address. Any user of a container may connect to a unix socket.

    Replaces the socket file of a killed gateway. Raises SandboxError if the address is unavailable, for example because
    its path is too long.
    """
    listener = socket.socket(socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if isinstance(address, Path):
            if address.is_socket():
                address.unlink()
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
