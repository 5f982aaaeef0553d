"""The only way out of a sandbox: a unix socket that leads to one model, and adds the credentials."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from include.core.errors import SandboxError
from include.core.types import ModelCall
from include.models.upstream import Upstream
from include.sandbox.provider import PATHS, Provider, Try, is_stream
from include.sandbox.usage import tokens_of

MAX_REQUEST_BYTES = 32 * 1024 * 1024
CLOSING_SECONDS = 1
BACKLOG = 128
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

log = logging.getLogger(__name__)


class ModelGateway:
    """An HTTP server on a unix socket that forwards calls of one model to one provider.

    `on_call` is called for every request that went to the provider, from the server's own thread.
    """

    def __init__(
        self,
        upstream: Upstream,
        socket_path: Path,
        *,
        stage: str,
        role: Literal["target", "optimizer"] = "target",
        max_attempts: int,
        call_timeout: float,
        on_call: Callable[[ModelCall], None],
    ) -> None:
        self._upstream = upstream
        self._socket_path = socket_path
        self._stage = stage
        self._role: Literal["target", "optimizer"] = role
        self._provider = Provider(upstream, max_attempts=max_attempts, call_timeout=call_timeout)
        self._on_call = on_call
        config = uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", self._handle, methods=METHODS)], lifespan=self._lifespan),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="model-gateway", daemon=True
        )

    def __enter__(self) -> Self:
        """Listen; any user of a container may connect.

        Raises:
            SandboxError: the socket cannot be made, for example below a path that is too long.
        """
        try:
            self._listener.bind(str(self._socket_path))
            self._socket_path.chmod(0o666)
            self._listener.listen(BACKLOG)
        except OSError as error:
            self._listener.close()
            raise SandboxError(f"the model gateway cannot listen at {self._socket_path}: {error}") from error
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self._socket_path.unlink(missing_ok=True)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self._provider:
            yield

    async def _handle(self, request: Request) -> Response:
        allowed = f"/v1/{PATHS[self._upstream.dialect]}"
        if request.method != "POST" or request.url.path != allowed:
            return _refuse(403, f"this sandbox may only POST {allowed}, not {request.method} {request.url.path}")
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return _refuse(413, f"a request may have at most {MAX_REQUEST_BYTES} bytes")
        model = _model_in(body)
        if model != self._upstream.model:
            return _refuse(403, f"this sandbox may only use the model {self._upstream.model}, not {model}")
        return await self._forward(body, httpx.Headers(request.headers.raw))

    async def _forward(self, body: bytes, headers: httpx.Headers) -> Response:
        started, clock = time.time(), time.monotonic()
        last: Try | None = None
        streamed = False
        answer = b""
        try:
            last = await self._provider.send(body, headers)
            if last.response is None:
                return self._no_answer(last)
            media_type = last.response.headers.get("content-type", "application/json")
            if last.response.is_success and is_stream(last.response):
                streamed = True
                chunks = self._stream(last, started, clock)
                return StreamingResponse(chunks, last.response.status_code, media_type=media_type)
            answer = self._redact(last.response.content)
            return Response(answer, last.response.status_code, media_type=media_type)
        except asyncio.CancelledError:
            # The gateway closes, and whoever asked is gone.
            return _refuse(503, "the gateway was closed")
        finally:
            if not streamed:
                self._report(last, answer, started, clock)

    async def _stream(self, last: Try, started: float, clock: float) -> AsyncIterator[bytes]:
        """The chunks as they come; the call is reported at the end, also if either side breaks off."""
        if last.response is None:
            return
        seen = bytearray()
        try:
            async for chunk in last.response.aiter_bytes():
                seen += chunk
                yield chunk
        except httpx.TransportError as error:
            log.warning("The model server broke off its answer: %s", type(error).__name__)
            raise
        finally:
            self._report(last, bytes(seen), started, clock)
            await last.response.aclose()

    def _report(self, last: Try | None, answer: bytes, started: float, clock: float) -> None:
        response = None if last is None else last.response
        tokens = tokens_of(answer, "" if response is None else response.headers.get("content-type", ""))
        call = ModelCall(
            role=self._role,
            stage=self._stage,
            model=self._upstream.model,
            http_status=0 if response is None else response.status_code,
            attempts=1 if last is None else last.attempts,
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            started=started,
            seconds=time.monotonic() - clock,
        )
        self._on_call(call)

    def _no_answer(self, last: Try) -> Response:
        what = type(last.failure).__name__
        log.warning("No answer from %s after %d tries: %s", self._upstream.base_url, last.attempts, what)
        if isinstance(last.failure, (httpx.TimeoutException, TimeoutError)):
            return _refuse(504, f"the model server did not answer in time, {last.attempts} tries")
        return _refuse(502, f"the model server cannot be reached ({what}), {last.attempts} tries")

    def _redact(self, answer: bytes) -> bytes:
        """Some servers repeat the key that they refuse."""
        key = self._upstream.api_key.get_secret_value().encode()
        return answer.replace(key, b"***") if key else answer


async def _body(request: Request) -> bytes | None:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_REQUEST_BYTES:
            return None
    return bytes(body)


def _model_in(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    model = document.get("model") if isinstance(document, dict) else None
    return model if isinstance(model, str) else None


def _refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "sandbox_gateway", "code": status}}, status)
