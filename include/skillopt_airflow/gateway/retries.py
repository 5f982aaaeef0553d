"""A call to a model server and its fallbacks, with retries after a 429, a 5xx, an invalid answer or a timeout.

Its tokens are those that the provider reports, or an estimate if the answer was interrupted.
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
from skillopt_airflow.gateway.backends import Backend, HttpBackend, OnToken, ignore_token
from skillopt_airflow.gateway.one_try import RateLimit, Reply, ask
from skillopt_airflow.gateway.redaction import Redaction
from skillopt_airflow.gateway.remaining_budget import BudgetSpent, GatewaySettings
from skillopt_airflow.gateway.upstream import Upstream

MAX_ESTIMATED = 1_000_000
"""No current model reads or writes more per call. Keeps a client's made-up limit from using up the budget."""
BYTES_PER_TOKEN = 4
PICTURE_SIDE = 2048
"""Assumed width and height of a picture, in pixels."""
PICTURE = re.compile(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{4096,}")
"""A picture in Base64; text has spaces or quotes in between."""
BYTES_PER_STREAMED_TOKEN = 16
"""Events have one or a few tokens each, and most of their bytes are overhead."""

FIRST_PAUSE = 0.5
"""Seconds between a call's first two tries, without the jitter."""
GROWTH = 2
"""Factor between successive pauses."""
OVERLOAD_GROWTH = 5
"""The same for an overload without Retry-After: five tries outlast a quota per minute."""
NO_TOKENS = Tokens()
CLOSED_SECONDS = 60.0
"""Calls skip a server for this time after all tries of a call failed there."""


class Meter:
    """Reads the token counts of a stream of server-sent events, and keeps the largest ones."""

    def __init__(self, wire_format: WireFormat) -> None:
        self._wire_format = wire_format
        self._line = bytearray()
        self._tokens = Tokens()

    def feed(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._read(bytes(self._line) + line)
            self._line.clear()
        self._line += rest

    @property
    def tokens(self) -> Tokens:
        """The tokens so far, including those of an incomplete last line."""
        self._read(bytes(self._line))
        return self._tokens

    def _read(self, line: bytes) -> None:
        # Parse only the few events with a usage.
        if line.startswith(b"data:") and b'"usage"' in line:
            more = tokens_of(line.removeprefix(b"data:"), self._wire_format)
            self._tokens = Tokens(max(self._tokens.prompt, more.prompt), max(self._tokens.completion, more.completion))


def tokens_of(text: bytes, wire_format: WireFormat) -> Tokens:
    """Return the usage in an answer, or in the data of one event."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Tokens()
    return wire_format.tokens(document) if isinstance(document, dict) else Tokens()


def estimate_tokens(request: bytes, streamed: int, seen: Tokens, wire_format: WireFormat) -> Tokens:
    """Return an estimate for a call whose answer was interrupted after `streamed` bytes and the tokens `seen`.

    Without any bytes, it's the request's token limit.
    """
    document: JsonObject = json.loads(request)
    allowed = count(document, *wire_format.limits)
    most = min(allowed, MAX_ESTIMATED)
    completion = min(streamed // BYTES_PER_STREAMED_TOKEN, most) if streamed else most
    pictures = PICTURE.findall(request)
    text = len(request) - sum(map(len, pictures))
    prompt = text // BYTES_PER_TOKEN + len(pictures) * wire_format.picture_tokens(PICTURE_SIDE, PICTURE_SIDE)
    is_final = bool(seen.completion) and wire_format.usage_at_end
    return Tokens(
        prompt=seen.prompt or min(prompt, MAX_ESTIMATED),
        completion=seen.completion if is_final else max(seen.completion, completion),
    )


@dataclass
class Call:
    body: bytes
    headers: httpx.Headers
    client: Hashable = None
    """The rate limit's clients take turns."""
    attempts: int = 0
    """Started tries."""
    model: str = ""
    """The model of the last try."""
    lost: Tokens = NO_TOKENS
    """The tokens of failed tries."""
    reply: Reply = field(default_factory=lambda: Reply(failure="timeout", why="was not asked in time"))
    """The result of the last finished try."""
    end: Callable[[], None] | None = None
    """Releases the last try's place in the rate limit; None if it has none."""
    started: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.monotonic)


@dataclass
class _Route:
    upstream: Upstream
    backend: Backend
    limit: RateLimit
    closed_until: float = 0.0


class Provider:
    """An upstream's server and its fallbacks, all with the same wire format."""

    def __init__(self, upstream: Upstream, settings: GatewaySettings) -> None:
        self._left = settings.allowance
        self._max_attempts = settings.max_attempts
        self._call_timeout = settings.call_timeout
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
        """Time limit of a call, in seconds: its tries and pauses, and half a try's time for the rate limit."""
        return (2 * self._max_attempts - 0.5) * self._call_timeout

    async def aclose(self) -> None:
        for route in self._routes:
            await route.backend.aclose()

    async def send(self, call: Call) -> None:
        """Make the call and store its result in `call`. Then call `finish`, and close the rest of a stream.

        Raises BudgetSpent if the budget allows no more calls.
        """
        try:
            async with asyncio.timeout(self.patience):
                now = time.monotonic()
                routes = [route for route in self._routes if route.closed_until <= now] or self._routes
                for route in routes:
                    call.reply = await self._tries(route, call, is_last=route is routes[-1])
                    if not call.reply.retryable:
                        return
                    route.closed_until = time.monotonic() + CLOSED_SECONDS
        except TimeoutError:
            if not call.reply.failure:
                call.reply = Reply(failure="timeout", why=f"did not send a valid answer within {self.patience:g} s")

    def finish(self, call: Call, tokens: Tokens) -> None:
        """Deduct tokens from the budget and end the call's last try."""
        self._left = self._left.minus(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
        if call.end is not None:
            end, call.end = call.end, None
            end()

    async def _tries(self, route: _Route, call: Call, *, is_last: bool) -> Reply:
        for number in range(1, self._max_attempts):
            reply = await self._try(route, call)
            if not reply.retryable:
                return reply
            await asyncio.sleep(self._pause(reply, number, is_last=is_last))
        return await self._try(route, call)

    async def _try(self, route: _Route, call: Call) -> Reply:
        began = await self._begin_try(route, call)
        call.attempts += 1
        call.model = route.upstream.model
        call.end = partial(route.limit.end, call.client, began, "failed", None)
        call.reply = await ask(route.backend, call.body, call.headers, route.upstream.wire_format, self._call_timeout)
        asked = call.reply.retry_after
        pause = None if asked is None else min(asked, self._call_timeout)
        call.end = partial(route.limit.end, call.client, began, call.reply.outcome, pause)
        if call.reply.retryable:
            timed_out, wire_format = call.reply.failure == "timeout", route.upstream.wire_format
            reported = tokens_of(call.reply.body, wire_format)
            lost = estimate_tokens(call.body, 0, NO_TOKENS, wire_format) if timed_out else reported
            call.lost += lost
            self.finish(call, lost)
        return call.reply

    async def _begin_try(self, route: _Route, call: Call) -> int:
        """Wait for the rate limit. The first try also deducts the call from the budget."""
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

    def _pause(self, reply: Reply, number: int, *, is_last: bool) -> float:
        """Return the longer of an exponential pause with jitter and Retry-After, at most a try's timeout."""
        is_open_ended = reply.outcome == "overloaded" and reply.retry_after is None
        # Don't delay the switch to the next server.
        growth = OVERLOAD_GROWTH if is_open_ended and is_last else GROWTH
        backoff: float = FIRST_PAUSE * growth ** (number - 1) * random.uniform(1.0, 1.5)  # noqa: S311
        asked = 0.0 if reply.retry_after is None else reply.retry_after
        return min(max(backoff, asked), self._call_timeout)


def open_backend(upstream: Upstream, timeout: float, on_token: OnToken = ignore_token) -> Backend:
    """Return an upstream's backend, without its fallbacks. `on_token` gets the identity's token before each try."""
    if upstream.provider:
        from skillopt_airflow.gateway.translation import TranslatingBackend

        return TranslatingBackend(upstream, timeout)
    return HttpBackend(upstream, timeout, on_token)
