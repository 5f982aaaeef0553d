"""A call to a model server and its fallbacks, with retries after a 429, a 5xx, a broken answer or a time-out.

Its tokens are those that the provider reports, or an estimate for an answer without an end.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

import httpx

from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import Tokens, WireFormat, count
from skillopt_airflow.gateway.backends import Backend, HttpBackend, OnToken, unheard
from skillopt_airflow.gateway.one_try import Outcome, RateLimit, Reply, ask
from skillopt_airflow.gateway.redaction import Redaction
from skillopt_airflow.gateway.remaining_budget import BudgetSpent, GatewaySettings
from skillopt_airflow.gateway.upstream import Upstream

MAX_ESTIMATED = 1_000_000
"""No model of today reads or writes more in a call; what a client writes into a request shall not spend a budget."""
BYTES_PER_TOKEN = 4
LARGEST_SIDE = 2048
"""Pixels of a picture whose size nobody knows."""
ENCODED = re.compile(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{4096,}")
"""A picture in Base64: no text has so many of these without a space or a quote."""
BYTES_PER_STREAMED_TOKEN = 16
"""Most of a stream is the frame of its events, of which each has one token or a few."""

FIRST_PAUSE = 0.5
"""Seconds between a call's first two tries, without the jitter."""
GROWTH = 2
"""Each pause is so many times the one before."""
OVERLOAD_GROWTH = 5
"""That of a server which does not say how long it is overloaded: five tries outlast a quota of a minute."""
NONE = Tokens()
CLOSED_SECONDS = 60.0
"""Time for which calls skip a server that failed all tries of a call."""


class Meter:
    """Reads a stream of server-sent events as it passes, and keeps the largest counts."""

    def __init__(self, wire_format: WireFormat) -> None:
        self._wire_format = wire_format
        self._line = bytearray()
        self._tokens = Tokens()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, which may end anywhere."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._read(bytes(self._line) + line)
            self._line.clear()
        self._line += rest

    @property
    def tokens(self) -> Tokens:
        """The tokens counted so far, also if the stream ended within a line."""
        self._read(bytes(self._line))
        return self._tokens

    def _read(self, line: bytes) -> None:
        # Few events hold it, and the others need not be parsed.
        if line.startswith(b"data:") and b'"usage"' in line:
            more = tokens_of(line.removeprefix(b"data:"), self._wire_format)
            self._tokens = Tokens(max(self._tokens.prompt, more.prompt), max(self._tokens.completion, more.completion))


def tokens_of(text: bytes, wire_format: WireFormat) -> Tokens:
    """Return the usage inside a JSON document: an answer, or the data of one event."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Tokens()
    return wire_format.tokens(document) if isinstance(document, dict) else Tokens()


def estimated(request: bytes, streamed: int, seen: Tokens, wire_format: WireFormat) -> Tokens:
    """Return an estimate of a call whose answer nobody saw the end of.

    Args:
        streamed: bytes of the answer that came; if none did, all tokens count that the request allows.
        seen: what the provider told so far.
    """
    document: JsonObject = json.loads(request)
    allowed = count(document, *wire_format.limits)
    most = min(allowed, MAX_ESTIMATED)
    completion = min(streamed // BYTES_PER_STREAMED_TOKEN, most) if streamed else most
    pictures = ENCODED.findall(request)
    text = len(request) - sum(map(len, pictures))
    read = text // BYTES_PER_TOKEN + len(pictures) * wire_format.picture_tokens(LARGEST_SIDE, LARGEST_SIDE)
    told_all = bool(seen.completion) and wire_format.usage_at_end
    return Tokens(
        prompt=seen.prompt or min(read, MAX_ESTIMATED),
        completion=seen.completion if told_all else max(seen.completion, completion),
    )


@dataclass
class Call:
    body: bytes
    headers: httpx.Headers
    client: Hashable = None
    """The client that waits for it; the clients of a gateway take turns."""
    attempts: int = 0
    """Tries that were begun."""
    model: str = ""
    """The model that was asked last."""
    lost: Tokens = NONE
    """The tokens of tries that ended without an answer."""
    reply: Reply = field(default_factory=lambda: Reply(failure="timeout", why="was not asked in time"))
    """The result of the last try that ended."""
    end: Callable[[], None] | None = None
    """Ends the last try, while that holds its place in the rate limit."""
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.monotonic)


@dataclass
class _Route:
    upstream: Upstream
    backend: Backend
    limit: RateLimit
    closed_until: float = 0.0
    """Time at which calls come here again. Until then they go to the next server, because a whole call failed here."""


class Provider:
    """The server behind an upstream and its fallbacks, all of the same wire format."""

    def __init__(self, upstream: Upstream, settings: GatewaySettings) -> None:
        self._left = settings.allowance
        self._max_attempts = settings.max_attempts
        self._call_timeout = settings.call_timeout
        # Some servers repeat the key that they refuse.
        self.redaction = Redaction(upstream.secrets())
        self._routes = [
            _Route(
                server,
                open_backend(server, settings.call_timeout, self.redaction.add),
                RateLimit(min(settings.max_concurrency, settings.share)),
            )
            for server in (upstream, *upstream.fallbacks)
        ]

    @property
    def patience(self) -> float:
        """Seconds for a call: its tries, the pauses between them, and half a try's time to wait for the rate limit."""
        return (2 * self._max_attempts - 0.5) * self._call_timeout

    async def aclose(self) -> None:
        for route in self._routes:
            await route.backend.aclose()

    async def send(self, call: Call) -> None:
        """Make the call and keep its result in `call`, which has to be settled; the rest of a stream has to be closed.

        Raises:
            BudgetSpent: the budget allows no more calls.
        """
        try:
            async with asyncio.timeout(self.patience):
                routes = self._open_routes()
                for route in routes:
                    call.reply = await self._tries(route, call, is_last=route is routes[-1])
                    if not call.reply.passing:
                        return
                    route.closed_until = time.monotonic() + CLOSED_SECONDS
        except TimeoutError:
            if not call.reply.failure:
                call.reply = Reply(failure="timeout", why=f"did not answer well within {self.patience:g} s")

    def settle(self, call: Call, tokens: Tokens) -> None:
        """Deduct tokens from the budget and end the call's last try."""
        self._left = self._left.minus(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
        if call.end is not None:
            end, call.end = call.end, None
            end()

    async def _tries(self, route: _Route, call: Call, *, is_last: bool) -> Reply:
        for number in range(1, self._max_attempts):
            reply = await self._try(route, call)
            if not reply.passing:
                return reply
            await asyncio.sleep(self._pause(reply, number, is_last=is_last))
        return await self._try(route, call)

    async def _try(self, route: _Route, call: Call) -> Reply:
        began = await self._begun(route, call)
        call.attempts += 1
        call.model = route.upstream.model
        call.end = partial(route.limit.end, call.client, began, "failed", None)
        call.reply = await ask(route.backend, call.body, call.headers, route.upstream.wire_format, self._call_timeout)
        call.end = partial(route.limit.end, call.client, began, *self._judged(call.reply))
        if call.reply.passing:
            lost = _lost(call, route.upstream.wire_format)
            call.lost += lost
            self.settle(call, lost)
        return call.reply

    async def _begun(self, route: _Route, call: Call) -> int:
        """Count the call, unless it was tried before, and wait until a try may begin."""
        if call.attempts:
            return await route.limit.begin(call.client)
        if used_up := self._left.used_up():
            raise BudgetSpent(used_up)
        self._left = self._left.minus(calls=1)
        try:
            return await route.limit.begin(call.client)
        except BaseException:
            self._left = self._left.minus(calls=-1)
            raise

    def _judged(self, reply: Reply) -> tuple[Outcome, float | None]:
        """Return what the reply means for the rate limit, and the pause that the server asks for."""
        if reply.overloaded:
            asked = reply.retry_after
            return "overloaded", None if asked is None else min(asked, self._call_timeout)
        return "failed" if reply.passing else "answered", None

    def _pause(self, reply: Reply, number: int, *, is_last: bool) -> float:
        """Return a jittered exponential pause, or the longer one that the server asks for; at most the time of a try.

        The pause that it asks for with an overload holds for all calls, and the rate limit keeps it besides.
        """
        untold = reply.overloaded and reply.retry_after is None
        # While there is another server, that one is asked soon.
        growth = OVERLOAD_GROWTH if untold and is_last else GROWTH
        backoff: float = FIRST_PAUSE * growth ** (number - 1) * random.uniform(1.0, 1.5)  # noqa: S311
        asked = 0.0 if reply.retry_after is None else reply.retry_after
        return min(max(backoff, asked), self._call_timeout)

    def _open_routes(self) -> list[_Route]:
        now = time.monotonic()
        return [route for route in self._routes if route.closed_until <= now] or self._routes


def _lost(call: Call, wire_format: WireFormat) -> Tokens:
    """Return what the last try cost, which ended without an answer: what it told, or may have cost until its end."""
    if call.reply.failure == "timeout":
        return estimated(call.body, 0, NONE, wire_format)
    return tokens_of(call.reply.body, wire_format)


def open_backend(upstream: Upstream, timeout: float, on_token: OnToken = unheard) -> Backend:
    """Return the backend of an upstream, without its fallbacks.

    Args:
        timeout: seconds that one try may wait for it.
        on_token: called with an identity's token before each try that takes it along.
    """
    if upstream.provider:
        from skillopt_airflow.gateway.translation import TranslatingBackend

        return TranslatingBackend(upstream, timeout)
    return HttpBackend(upstream, timeout, on_token)
