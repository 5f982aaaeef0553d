"""The only way out of a sandbox: a server that forwards calls to one model and adds the credentials."""

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from skillopt_airflow.core.errors import SandboxError, SkillOptError
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.gateway.allowance import Allowance, More
from skillopt_airflow.gateway.app import GatewayApp
from skillopt_airflow.gateway.fallbacks import Provider
from skillopt_airflow.gateway.gateway_settings import GatewaySettings
from skillopt_airflow.gateway.listening import GuardedProtocol, listen
from skillopt_airflow.gateway.search_route import SearchRoute
from skillopt_airflow.gateway.shared_state import shared
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import WebSearch

MAX_HEAD_BYTES = 32 * 1024
CLOSING_SECONDS = 1
IDLE_SECONDS = 75
"""Idle time before a connection is closed: longer than clients keep one, so that none uses a closed one."""
STARTING_SECONDS = 60.0


class ModelGateway:
    """An HTTP server that forwards calls of one model to one provider, or to its fallbacks.

    Args:
        upstream: the model server, with its credentials and fallbacks.
        address: the path of a unix socket, or a host and a port.
        on_call: called for every call that went to the provider, from the server's own thread.
        search: answers searches and opens pages, if the run has a search.
        more: gives more than the settings' allowance, if anybody does; called in a thread.
        settings: the fields of `GatewaySettings`.
    """

    def __init__(
        self,
        upstream: Upstream,
        address: Path | tuple[str, int],
        *,
        on_call: Callable[[ModelCall], None],
        search: WebSearch | None = None,
        more: More | None = None,
        **settings: Any,
    ) -> None:
        self._settings = GatewaySettings(**settings)
        self._upstream = upstream
        self._address = address
        self._on_call = on_call
        self._search = None if search is None else SearchRoute(search)
        self._allowance = Allowance(self._settings.allowance, more)
        self._failure: Exception | None = None
        self._server = uvicorn.Server(self._config())

    def __enter__(self) -> Self:
        """Listen, and take calls.

        Raises:
            SandboxError: the address cannot be had, for example below a path that is too long, or the host's temporary
                folder cannot be written.
        """
        self._listener = listen(self._address)
        self._thread = threading.Thread(target=self._run, name="model-gateway", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + STARTING_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)
        if not self._server.started:
            self._stop()
            late, failure = TimeoutError(f"not within {STARTING_SECONDS:g} s"), self._failure
            said = str(failure) if isinstance(failure, SkillOptError) else repr(failure or late)
            raise SandboxError(f"the model gateway did not start: {said}") from failure
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    @property
    def port(self) -> int:
        """The TCP port on which it listens."""
        return int(self._listener.getsockname()[1])

    def _run(self) -> None:
        # Uvicorn ends the process where the lifespan fails; here that ends the thread.
        with suppress(SystemExit):
            self._server.run(sockets=[self._listener])

    def _stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        if isinstance(self._address, Path):
            self._address.unlink(missing_ok=True)

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            Router(default=self._answer, lifespan=self._lifespan),
            loop="asyncio",
            http=GuardedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Router) -> AsyncIterator[None]:
        try:
            async with (
                shared(self._settings.shared_by) as state,
                aclosing(Provider(self._upstream, state, self._settings, self._allowance)) as provider,
            ):
                # Each call of a provider whose client blocks, such as Bedrock's, takes one of these threads.
                threads = current_default_thread_limiter()
                threads.total_tokens = max(threads.total_tokens, self._settings.share)
                self._app = GatewayApp(self._upstream, provider, self._settings, self._on_call, self._search)
                yield
        except Exception as error:
            self._failure = error
            raise

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._app.handle(Request(scope, receive))
        await response(scope, receive, send)
