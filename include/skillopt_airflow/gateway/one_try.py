"""One try of one call: its rate limit, its time and size limits, and the check that it has an answer."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

import httpx

from skillopt_airflow.core.values.failure_reasons import error_status, failure_http_status
from skillopt_airflow.core.wire_formats.wire_format import WireFormat
from skillopt_airflow.gateway.backends import Backend
from skillopt_airflow.gateway.request_filter import FormatError, parse_object

START = 32
"""Initial limit of concurrent tries: the number of items in a default batch."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic."""

Outcome = Literal["answered", "overloaded", "failed"]

MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_FIRST_EVENT_BYTES = 1024 * 1024
EVENT_STREAM = "text/event-stream"

Failure = Literal["", "unreachable", "timeout", "garbage", "too_long"]


class RateLimit:
    """Limits one gateway's concurrent tries at one server: slow start, cuts on overload, pauses on request.

    The next turn goes to the client with the fewest running tries; among equals, to the one that waits longest.
    """

    def __init__(self, most: int) -> None:
        self.limit = float(START)
        self._most = most
        self._doubling = True
        """Slow start until the first cut: each answer raises the limit by one, so each round doubles it."""
        self._cuts = 0
        self._not_before = 0.0
        self._busy: Counter[Hashable] = Counter()
        self._turns = 0
        self._last_turn: dict[Hashable, int] = {}
        """By client; only clients that wait or have running tries."""
        self._waiting: dict[asyncio.Future[int], Hashable] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def begin(self, client: Hashable) -> int:
        """Wait for a turn, and return the number of cuts so far. Call `end` after each try."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = client
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end(client, -1, "failed")
            raise
        finally:
            del self._waiting[turn]

    def end(self, client: Hashable, began: int, how: Outcome, pause: float | None = None) -> None:
        """End a try that began after `began` cuts. `pause`: seconds that an overloaded server asks to wait.

        All tries of a round see the same overload, so only the first one cuts the limit. Answers to tries from before
        the cut don't raise the new limit.
        """
        self._busy[client] -= 1
        if not self._busy[client]:
            del self._busy[client]
        if client not in self._waiting.values():
            self._last_turn.pop(client, None)
        if how == "overloaded" and pause is not None:
            self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
        if began == self._cuts and how == "answered":
            self.limit = min(self.limit + (1.0 if self._doubling else 1.0 / self.limit), float(self._most))
        elif began == self._cuts and how == "overloaded":
            self.limit, self._doubling, self._cuts = max(1.0, self.limit / 2), False, self._cuts + 1
        self._admit()

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before:
            if self._alarm is None:
                self._alarm = loop.call_at(self._not_before, self._wake)
            return
        while self._busy.total() < min(int(self.limit), self._most):
            waiting = [turn for turn in self._waiting if not turn.done()]
            if not waiting:
                return
            turn = min(waiting, key=self._rank)
            client = self._waiting[turn]
            self._turns += 1
            self._busy[client] += 1
            self._last_turn[client] = self._turns
            turn.set_result(self._cuts)

    def _rank(self, turn: asyncio.Future[int]) -> tuple[int, int]:
        client = self._waiting[turn]
        return self._busy[client], self._last_turn.get(client, 0)

    def _wake(self) -> None:
        self._alarm = None
        self._admit()


class Rest:
    """The remaining chunks of a stream. Reading raises httpx.RequestError if the server fails, or TimeoutError."""

    def __init__(self, response: httpx.Response, chunks: AsyncIterator[bytes], deadline: float) -> None:
        self._response = response
        self._chunks = chunks
        self._deadline = deadline

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        async with asyncio.timeout_at(self._deadline):
            return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._response.aclose()


@dataclass(frozen=True)
class Reply:
    """The result of a try."""

    status: int = 0
    """The server's status; 0 without a usable answer."""
    media_type: str = "application/json"
    body: bytes = b""
    """The whole answer, or the beginning of a stream."""
    rest: Rest | None = None
    """The remainder of a stream."""
    retry_after: float | None = None
    """Seconds."""
    failure: Failure = ""
    why: str = ""
    """The reason for the failure."""

    @property
    def outcome(self) -> Outcome:
        """The result for the rate limit."""
        if self.status in OVERLOADED:
            return "overloaded"
        return "failed" if self.retryable else "answered"

    @property
    def retryable(self) -> bool:
        failed = self.failure in ("unreachable", "timeout", "garbage")
        return failed or self.status in (408, 429) or self.status >= 500


async def ask(backend: Backend, body: bytes, headers: httpx.Headers, wire_format: WireFormat, seconds: float) -> Reply:
    """Make one try of at most `seconds`. Failures are returned as replies."""
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(deadline):
            return await _fetch(backend, body, headers, wire_format, deadline)
    except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
        return Reply(failure="timeout", why=f"did not answer within {seconds:g} s")
    except (FormatError, httpx.DecodingError) as error:
        return Reply(failure="garbage", why=f"sent an invalid answer: {error}")
    except (httpx.RequestError, httpx.InvalidURL) as error:
        return Reply(failure="unreachable", why=f"cannot be reached ({type(error).__name__})")


async def _fetch(
    backend: Backend, body: bytes, headers: httpx.Headers, wire_format: WireFormat, deadline: float
) -> Reply:
    response = await backend.send(body, headers)
    kept_open = False
    try:
        media_type = response.headers.get("content-type", "application/json")
        if not response.is_success:
            text = await _beginning(response, MAX_ERROR_BYTES)
            # A client would follow a redirect, or treat another status as a success.
            status = response.status_code if 400 <= response.status_code < 600 else 502
            if status >= 500 and error_status(status, text) is not None:
                status = 400
            return Reply(status, media_type, text, retry_after=retry_after(response))
        if media_type.startswith(EVENT_STREAM):
            chunks = response.aiter_bytes()
            status, head = await _first_event(chunks, wire_format)
            if status >= 400:
                return Reply(status, body=head)
            kept_open = True
            return Reply(response.status_code, media_type, head, Rest(response, chunks, deadline))
        text = await _beginning(response, MAX_ANSWER_BYTES + 1)
        if len(text) > MAX_ANSWER_BYTES:
            return Reply(failure="too_long", why=f"sent more than {MAX_ANSWER_BYTES} bytes")
        document = parse_object(text)
        if wire_format.is_answer(document):
            return Reply(response.status_code, media_type, wire_format.whole(document, text))
        if status := failure_http_status(document):
            return Reply(status, media_type, text)
        return Reply(
            failure="garbage", why="sent an invalid answer: a JSON object without the required fields", body=text
        )
    finally:
        if not kept_open:
            await response.aclose()


async def _beginning(response: httpx.Response, most: int) -> bytes:
    text = bytearray()
    async for chunk in response.aiter_bytes():
        text += chunk
        if len(text) >= most:
            break
    return bytes(text[:most])


async def _first_event(chunks: AsyncIterator[bytes], wire_format: WireFormat) -> tuple[int, bytes]:
    """Return 200 and the bytes up to the chunk with the first event's end, or the failure that the event reports."""
    head = bytearray()
    async for chunk in chunks:
        head += chunk
        *lines, _ = head.split(b"\n")
        data = next((line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")), None)
        if data is not None:
            document = parse_object(bytes(data))
            if wire_format.is_event(document):
                return 200, bytes(head)
            if status := failure_http_status(document):
                return status, bytes(data)
            raise FormatError("a stream whose first event lacks required fields")
        if len(head) > MAX_FIRST_EVENT_BYTES:
            break
    raise FormatError("a stream without an event")


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of the header Retry-After, which is a number or a date."""
    text = response.headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text).timestamp()
        now = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
    return max(0.0, date - now)
