"""The gateway's HTTP application, one per socket: one path for the model, and one for the run's search."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any

import httpx
from pydantic import Field, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.types import ModelCall, Value
from skillopt_airflow.core.wire_formats.wire_format import Tokens, WireFormat
from skillopt_airflow.gateway.one_try import MAX_ANSWER_BYTES, Reply, Rest
from skillopt_airflow.gateway.redaction import Redaction
from skillopt_airflow.gateway.remaining_budget import BudgetSpent, GatewaySettings
from skillopt_airflow.gateway.request_filter import MAX_PARTS, filter_request, has_many_parts
from skillopt_airflow.gateway.retries import Call, Meter, Provider, estimate_tokens, tokens_of
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import SearchError, SearchLimitExceeded, WebSearch

SEARCH = ("POST", b"/search", b"")
"""Method, path and query of a search."""
MAX_SEARCH_BYTES = 64 * 1024
MAX_REQUEST_BYTES = 32 * 1024 * 1024
SMALL_BYTES = 32 * 1024
"""Requests up to this length are checked in the event loop, without a queue."""
MAX_HELD_BYTES = 4 * MAX_REQUEST_BYTES
"""Total announced length of one socket's larger requests. Further ones wait."""
REQUEST_SECONDS = 60.0
"""Time limit for a request's body. On a remote engine, the containers of a task share a socket."""
MAX_LOGGED_REFUSALS = 20
MAX_SHOWN = 100
NO_RETRY = {"x-should-retry": "false"}
"""Header of every failure, because the gateway does the retries."""

log = logging.getLogger(__name__)


class SearchQuery(Value):
    query: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


async def _search_response(search: WebSearch, body: bytearray) -> Response:
    """Return results, or an error: 400 (invalid), 413 (too long), 429 (search limit) or 502 (search failed)."""
    if len(body) > MAX_SEARCH_BYTES:
        return JSONResponse({"error": f"a search has at most {MAX_SEARCH_BYTES} bytes"}, 413)
    try:
        query = SearchQuery.model_validate_json(body).query
        log.info("Search: %.200r", query)
        found = await search.search(query)
        return JSONResponse({"results": [one.model_dump() for one in found]})
    except ValidationError as error:
        return JSONResponse({"error": f"the request is not usable: {flaws(error, 1):.300}"}, 400)
    except SearchLimitExceeded as error:
        return JSONResponse({"error": str(error)}, 429)
    except (SearchError, StoreError) as error:
        log.warning("%s", error)
        return JSONResponse({"error": str(error)}, 502)


class Refusal(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code


class GatewayApp:
    """Answers the requests of one socket. All arguments are shared by the gateway's sockets.

    `checking` is a lock for parsing large requests: the gateway holds only one of them as objects.
    """

    def __init__(
        self,
        upstream: Upstream,
        provider: Provider,
        settings: GatewaySettings,
        on_call: Callable[[ModelCall], None],
        checking: asyncio.Lock,
        search: WebSearch | None,
    ) -> None:
        self._upstream = upstream
        self._search = search
        self._redaction = provider.redaction
        self._provider = provider
        self._settings = settings
        self._on_call = on_call
        self._wire_format = upstream.wire_format
        self._path = f"/v1/{self._wire_format.path}"
        self._checking = checking
        self._next_check = asyncio.Lock()
        self._held = 0
        self._next_large = asyncio.Lock()
        self._freed = asyncio.Event()
        self._refusals = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Its bytes count as held until the answer is sent."""
        async with AsyncExitStack() as held:
            response = await self._handle(Request(scope, receive), held)
            await response(scope, receive, send)

    async def _handle(self, request: Request, held: AsyncExitStack) -> Response:
        scope = request.scope
        if scope["method"] == "HEAD" and scope["raw_path"] == b"/":
            # Claude Code warms up a connection like this, which needs no warning.
            return _error_response(403, f"this sandbox may only POST {self._path}")
        try:
            if self._search is not None and (scope["method"], scope["raw_path"], scope["query_string"]) == SEARCH:
                return await _search_response(self._search, await held.enter_async_context(self._receive_body(request)))
            self._check_address(scope)
            body = await held.enter_async_context(self._receive_body(request))
            forwarded = await self._filter(body)
            body.clear()
            headers = httpx.Headers(request.headers.raw)
            return await self._forward(request, Call(forwarded, headers, client=self, model=self._upstream.model))
        except Refusal as refusal:
            return self._refuse(refusal)
        except BudgetSpent as spent:
            return self._refuse(Refusal(402, f"{spent} is spent, so the run makes no more model calls", "budget"))
        except (ClientDisconnect, asyncio.CancelledError):
            # The client disconnected, or the gateway closes.
            return _error_response(503, "the gateway was closed")

    def _check_address(self, scope: Scope) -> None:
        """Raise Refusal unless method, path and query equal the wire format's, byte by byte."""
        raw_path = scope["raw_path"].decode("latin-1")
        if scope["method"] == "POST" and raw_path == f"{self._path}/count_tokens":
            # Clients then count themselves.
            raise Refusal(404, "this sandbox's gateway does not count tokens")
        if scope["method"] != "POST" or raw_path != self._path:
            actual = f"{scope['method']} {raw_path}"[:MAX_SHOWN]
            raise Refusal(403, f"this sandbox may only POST {self._path}, not {actual}")
        if scope["query_string"] not in self._wire_format.queries:
            raise Refusal(403, f"this sandbox may only POST {self._path} without a query")

    @asynccontextmanager
    async def _receive_body(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the request's body. A large one waits for room, and keeps it until the block ends."""
        announced = request.headers.get("content-length", 0)
        size = MAX_REQUEST_BYTES if "transfer-encoding" in request.headers else int(announced)
        if size > MAX_REQUEST_BYTES:
            raise _too_long()
        counted = 0 if size <= SMALL_BYTES else size
        if counted:
            async with self._next_large:
                while self._held + counted > MAX_HELD_BYTES:
                    self._freed.clear()
                    await self._freed.wait()
        self._held += counted
        try:
            yield await _body(request)
        finally:
            self._held -= counted
            self._freed.set()

    async def _filter(self, body: bytearray) -> bytes:
        """Return the request to forward. Large ones are checked in a thread, one at a time.

        Each socket has at most one request in that queue, so that no socket blocks the others.
        """
        if len(body) <= SMALL_BYTES:
            return self._check(body)
        async with self._next_check, self._checking:
            return await asyncio.to_thread(self._check, body)

    def _check(self, body: bytearray) -> bytes:
        if has_many_parts(body):
            raise Refusal(413, f"a request may have at most {MAX_PARTS} lists, objects and values")
        try:
            document = from_json(body, allow_inf_nan=False)
            if isinstance(document, dict) and (model := document.get("model")) != self._upstream.model:
                raise Refusal(403, f"this sandbox may only use {self._upstream.model}, not {model!r:.{MAX_SHOWN}}")
            return filter_request(document, self._wire_format, self._settings.max_tokens)
        except ValueError as error:
            raise Refusal(400, f"the request is not usable: {error}") from None

    async def _forward(self, request: Request, call: Call) -> Response:
        tokens = Tokens()
        broken_at: int | None = 0
        streams = False
        try:
            if not await _until_disconnect(request.receive, self._provider.send(call)):
                return _error_response(503, "the client disconnected")
            broken_at = None
            reply = call.reply
            if reply.failure:
                status = 504 if reply.failure == "timeout" else 502
                return _error_response(status, f"the model server {reply.why}, tries: {call.attempts}", reply.failure)
            if reply.rest is not None:
                streams = True
                finish, seconds = partial(self._finish_call, call), self._settings.call_timeout
                return StreamResponse(reply, reply.rest, self._redaction, self._wire_format, finish, seconds)
            if not reply.retryable:
                # The provider counts the tokens of retryable failures itself.
                tokens = tokens_of(reply.body, self._wire_format)
            headers = NO_RETRY if reply.status >= 400 else None
            media_type = self._redaction.redact_text(reply.media_type)
            return Response(self._redaction.redact(reply.body), reply.status, headers, media_type)
        finally:
            if not streams:
                self._finish_call(call, tokens, broken_at)

    def _finish_call(self, call: Call, tokens: Tokens, broken_at: int | None) -> None:
        """Report the call, deduct its cost from the budget, and release its place in the rate limit.

        `broken_at` is the number of bytes of an interrupted answer, for which the provider charges, too.
        """
        # `end` is None between two tries, when no request is open.
        if call.end is not None and broken_at is not None:
            tokens = estimate_tokens(call.body, broken_at, tokens, self._wire_format)
        if call.attempts:
            used = call.lost + tokens
            self._on_call(
                ModelCall(
                    role="target",
                    stage=self._settings.stage,
                    model=call.model,
                    http_status=call.reply.status,
                    attempts=call.attempts,
                    prompt_tokens=used.prompt,
                    completion_tokens=used.completion,
                    started=call.started,
                    seconds=time.monotonic() - call.clock,
                )
            )
        self._provider.finish(call, tokens)

    def _refuse(self, refusal: Refusal) -> Response:
        self._refusals += 1
        if self._refusals <= MAX_LOGGED_REFUSALS:
            log.warning("Refused a sandbox's request (%d): %s", refusal.status, refusal)
        if self._refusals == MAX_LOGGED_REFUSALS:
            log.warning("Further refusals of this sandbox's requests are not logged")
        return _error_response(refusal.status, str(refusal), refusal.code)


class StreamResponse(Response):
    """Forwards a stream to a client that reads it within `seconds`.

    `finish` gets the tokens at the end; of an interrupted stream, it gets the tokens so far and the number of bytes.
    """

    def __init__(
        self,
        reply: Reply,
        rest: Rest,
        redaction: Redaction,
        wire_format: WireFormat,
        finish: Callable[[Tokens, int | None], None],
        seconds: float,
    ) -> None:
        super().__init__(None, reply.status, media_type=redaction.redact_text(reply.media_type))
        del self.headers["content-length"]
        self._head = reply.body
        self._rest = rest
        self._redaction = redaction
        self._on_finish = finish
        self._seconds = seconds
        self._meter = Meter(wire_format)
        self._received = 0
        self._finished = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _until_disconnect(receive, self._forward(send))
        except asyncio.CancelledError:
            log.warning("The gateway closed during an answer")
        finally:
            await self._finish(self._received)

    async def _finish(self, broken_at: int | None) -> None:
        if not self._finished:
            self._finished = True
            try:
                self._on_finish(self._meter.tokens, broken_at)
            finally:
                await self._rest.aclose()

    async def _forward(self, send: Send) -> None:
        """Send the chunks. If the stream is cut, the client notices the missing end."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            # A client that doesn't read must not keep its place in the rate limit.
            async with asyncio.timeout(self._seconds):
                async for chunk in self._chunks():
                    self._meter.feed(chunk)
                    self._received += len(chunk)
                    if self._received > MAX_ANSWER_BYTES:
                        log.warning("Cut an answer of the model server after %d bytes", MAX_ANSWER_BYTES)
                        return
                    if chunk:
                        redacted = self._redaction.redact(chunk)
                        await send({"type": "http.response.body", "body": redacted, "more_body": True})
        except (httpx.RequestError, TimeoutError) as error:
            log.warning("The model server's answer was interrupted: %s", type(error).__name__)
            return
        # The client may send its next call as soon as it sees the end.
        await self._finish(None)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield self._head
        async for chunk in self._rest:
            yield chunk


async def _body(request: Request) -> bytearray:
    body = bytearray()
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_REQUEST_BYTES:
                    raise _too_long()
    except TimeoutError:
        raise Refusal(408, f"request not received within {REQUEST_SECONDS:g} s") from None
    return body


def _too_long() -> Refusal:
    return Refusal(413, f"a request may have at most {MAX_REQUEST_BYTES} bytes")


async def _until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Run the work until it ends or the client disconnects. Return whether it ended."""
    running = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((running, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            return False
        running.result()
        return True
    finally:
        for task in (running, disconnect):
            task.cancel()
        await asyncio.gather(running, disconnect, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error_response(status: int, message: str, code: str | int | None = None) -> Response:
    error = {"message": message, "type": "sandbox_gateway", "code": status if code is None else code}
    return JSONResponse({"type": "error", "error": error}, status, NO_RETRY)
