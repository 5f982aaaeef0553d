"""The gateway's HTTP application, one per socket.

One path takes one model's requests, and two take those of a search if the run has one. Everything else gets a reason.
"""

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
from skillopt_airflow.gateway.fallbacks import Call, Meter, Provider, estimated, tokens_of
from skillopt_airflow.gateway.one_try import MAX_ANSWER_BYTES, Reply, Rest
from skillopt_airflow.gateway.redaction import Redaction
from skillopt_airflow.gateway.remaining_budget import BudgetSpent, GatewaySettings
from skillopt_airflow.gateway.request_filter import MAX_PARTS, contained, has_many_parts
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import SearchFailed, SearchSpent, WebSearch

SEARCH = "/search"
MAX_SEARCH_BYTES = 64 * 1024
MAX_REQUEST_BYTES = 32 * 1024 * 1024
SMALL_BYTES = 32 * 1024
"""Length up to which a request waits for no other one, and is checked within the event loop."""
MAX_HELD_BYTES = 4 * MAX_REQUEST_BYTES
"""Limit for the larger requests of one socket together, by the length that they announce. More of them wait."""
REQUEST_SECONDS = 60.0
"""Time limit for receiving a request's body: on a remote engine, the containers of a task share a socket."""
MAX_LOGGED_REFUSALS = 20
MAX_SHOWN = 100
FINAL = {"x-should-retry": "false"}
"""Header of every failure: the gateway owns the retries."""

log = logging.getLogger(__name__)


class SearchAsked(Value):
    query: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class SearchRoute:
    """Answers with results, or with 400 (invalid), 413 (too long), 429 (asked too often) or 502 (no search)."""

    def __init__(self, search: WebSearch) -> None:
        self._search = search

    def takes(self, scope: Scope) -> bool:
        return scope["method"] == "POST" and scope["raw_path"] == SEARCH.encode() and not scope["query_string"]

    async def answer(self, body: bytes) -> Response:
        """Search; queries are logged."""
        if len(body) > MAX_SEARCH_BYTES:
            return JSONResponse({"error": f"a search has at most {MAX_SEARCH_BYTES} bytes"}, 413)
        try:
            query = SearchAsked.model_validate_json(body).query
            log.info("Search: %.200r", query)
            found = await self._search.search(query)
            return JSONResponse({"results": [one.model_dump() for one in found]})
        except ValidationError as error:
            return JSONResponse({"error": f"the request is not usable: {flaws(error, 1):.300}"}, 400)
        except SearchSpent as error:
            return JSONResponse({"error": str(error)}, 429)
        except (SearchFailed, StoreError) as error:
            log.warning("%s", error)
            return JSONResponse({"error": str(error)}, 502)


class Refused(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code


class GatewayApp:
    """Answers the requests of one socket; the sockets of a gateway share all that it is made of.

    `checking` is held while a large request is checked, so that the gateway holds one such request as objects.
    """

    def __init__(
        self,
        upstream: Upstream,
        provider: Provider,
        settings: GatewaySettings,
        on_call: Callable[[ModelCall], None],
        checking: asyncio.Lock,
        search: SearchRoute | None = None,
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
        """Answer a request; its bytes count as held until the answer is sent."""
        async with AsyncExitStack() as held:
            response = await self._handle(Request(scope, receive), held)
            await response(scope, receive, send)

    async def _handle(self, request: Request, held: AsyncExitStack) -> Response:
        if request.scope["method"] == "HEAD" and request.scope["raw_path"] == b"/":
            # Claude Code warms up a connection like this: it is refused, but not worth a warning.
            return _problem(403, f"this sandbox may only POST {self._path}")
        try:
            if self._search is not None and self._search.takes(request.scope):
                body = await held.enter_async_context(self._received(request))
                return await self._search.answer(bytes(body))
            self._check_address(request.scope)
            body = await held.enter_async_context(self._received(request))
            forwarded = await self._filtered(body)
            body.clear()
            headers = httpx.Headers(request.headers.raw)
            return await self._forward(request, Call(forwarded, headers, client=self, model=self._upstream.model))
        except Refused as refused:
            return self._refuse(refused)
        except BudgetSpent as spent:
            return self._refuse(Refused(402, f"{spent} is spent, so the run makes no more model calls", "budget"))
        except (ClientDisconnect, asyncio.CancelledError):
            # The client disconnected, or the gateway closes.
            return _problem(503, "the gateway was closed")

    def _check_address(self, scope: Scope) -> None:
        """Raise Refused unless method, path and query are those of the wire format, byte by byte."""
        raw_path = scope["raw_path"].decode("latin-1")
        if scope["method"] == "POST" and raw_path == f"{self._path}/count_tokens":
            # Not a call to a model; clients then count for themselves.
            raise Refused(404, "this sandbox's gateway does not count tokens")
        if scope["method"] != "POST" or raw_path != self._path:
            asked = f"{scope['method']} {raw_path}"[:MAX_SHOWN]
            raise Refused(403, f"this sandbox may only POST {self._path}, not {asked}")
        if scope["query_string"] not in self._wire_format.queries:
            raise Refused(403, f"this sandbox may only POST {self._path} without a query")

    @asynccontextmanager
    async def _received(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the request's body; a large one first waits for room, which it has until the block ends."""
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

    async def _filtered(self, body: bytearray) -> bytes:
        """Return the request as it is forwarded; a large one is checked in a thread, one at a time.

        A socket has one request in the queue for that, so it does not keep the others waiting for all of its own.
        """
        if len(body) <= SMALL_BYTES:
            return self._checked(body)
        async with self._next_check, self._checking:
            return await asyncio.to_thread(self._checked, body)

    def _checked(self, body: bytearray) -> bytes:
        if has_many_parts(body):
            raise Refused(413, f"a request may have at most {MAX_PARTS} lists, objects and values")
        try:
            document = from_json(body, allow_inf_nan=False)
            if isinstance(document, dict) and (model := document.get("model")) != self._upstream.model:
                raise Refused(403, f"this sandbox may only use {self._upstream.model}, not {model!r:.{MAX_SHOWN}}")
            return contained(document, self._wire_format, self._settings.max_tokens)
        except ValueError as error:
            raise Refused(400, f"the request is not usable: {error}") from None

    async def _forward(self, request: Request, call: Call) -> Response:
        tokens = Tokens()
        broken_at: int | None = 0
        streams = False
        try:
            if not await _while_there(request.receive, self._provider.send(call)):
                return _problem(503, "the client is gone")
            broken_at = None
            reply = call.reply
            if reply.failure:
                status = 504 if reply.failure == "timeout" else 502
                return _problem(status, f"the model server {reply.why}, tries: {call.attempts}", reply.failure)
            if reply.rest is not None:
                streams = True
                settle, seconds = partial(self._settle, call), self._settings.call_timeout
                return Streamed(reply, reply.rest, self._redaction, self._wire_format, settle, seconds)
            if not reply.passing:
                # Those of a try that may be made again are counted with it.
                tokens = tokens_of(reply.body, self._wire_format)
            headers = FINAL if reply.status >= 400 else None
            media_type = self._redaction.words(reply.media_type)
            return Response(self._redaction.whole(reply.body), reply.status, headers, media_type)
        finally:
            if not streams:
                self._settle(call, tokens, broken_at)

    def _settle(self, call: Call, tokens: Tokens, broken_at: int | None) -> None:
        """Report the call, deduct its cost from the budget, and make room for the next.

        `broken_at` is the number of bytes of an answer that broke off; the provider charges for it, too.
        """
        # Between two tries nothing is under way.
        if call.end is not None and broken_at is not None:
            tokens = estimated(call.body, broken_at, tokens, self._wire_format)
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
        self._provider.settle(call, tokens)

    def _refuse(self, refused: Refused) -> Response:
        self._refusals += 1
        if self._refusals <= MAX_LOGGED_REFUSALS:
            log.warning("Refused a sandbox's request (%d): %s", refused.status, refused)
        if self._refusals == MAX_LOGGED_REFUSALS:
            log.warning("Further refusals of this sandbox's requests are not logged")
        return _problem(refused.status, str(refused), refused.code)


class Streamed(Response):
    """Passes a stream on as it comes, to a client that reads it within `seconds`.

    At its end `settle` gets the tokens; if either side breaks off, it gets those so far and the number of bytes.
    """

    def __init__(
        self,
        reply: Reply,
        rest: Rest,
        redaction: Redaction,
        wire_format: WireFormat,
        settle: Callable[[Tokens, int | None], None],
        seconds: float,
    ) -> None:
        super().__init__(None, reply.status, media_type=redaction.words(reply.media_type))
        # Its length is not known.
        del self.headers["content-length"]
        self._head = reply.body
        self._rest = rest
        self._redaction = redaction
        self._settle = settle
        self._seconds = seconds
        self._meter = Meter(wire_format)
        self._came = 0
        self._finished = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _while_there(receive, self._pass_on(send))
        except asyncio.CancelledError:
            log.warning("The gateway closes within an answer")
        finally:
            await self._finish(self._came)

    async def _finish(self, broken_at: int | None) -> None:
        if not self._finished:
            self._finished = True
            try:
                self._settle(self._meter.tokens, broken_at)
            finally:
                await self._rest.aclose()

    async def _pass_on(self, send: Send) -> None:
        """Send the chunks; a client recognizes a stream that was cut by its missing end."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            # Also for a client that does not read: until the end, its call has a place in the task's rate limit.
            async with asyncio.timeout(self._seconds):
                async for chunk in self._chunks():
                    self._meter.feed(chunk)
                    self._came += len(chunk)
                    if self._came > MAX_ANSWER_BYTES:
                        log.warning("Cut an answer of the model server after %d bytes", MAX_ANSWER_BYTES)
                        return
                    await _say(send, self._redaction.whole(chunk))
        except (httpx.RequestError, TimeoutError) as error:
            log.warning("The answer of the model server broke off: %s", type(error).__name__)
            return
        # Before the client sees the end and asks for more.
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
        raise Refused(408, f"request not received within {REQUEST_SECONDS:g} s") from None
    return body


def _too_long() -> Refused:
    return Refused(413, f"a request may have at most {MAX_REQUEST_BYTES} bytes")


async def _say(send: Send, text: bytes) -> None:
    if text:
        await send({"type": "http.response.body", "body": text, "more_body": True})


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work unless the client disconnects first; return whether it was done."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            return False
        doing.result()
        return True
    finally:
        for task in (doing, gone):
            task.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _problem(status: int, message: str, code: str | int | None = None) -> Response:
    error = {"message": message, "type": "sandbox_gateway", "code": status if code is None else code}
    return JSONResponse({"type": "error", "error": error}, status, FINAL)
