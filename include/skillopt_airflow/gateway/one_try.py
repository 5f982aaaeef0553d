"""One try of one call: its time and size limits, and the check that the result is an answer.

The rate limit admits it: slow start, cuts on overload, pauses as the server asks.
"""

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
from skillopt_airflow.gateway.request_filter import NotUsable, parsed

START = 32
"""Tries at the same time before anything is known of the server: as many as the default configuration has items."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic; other failures say nothing about it."""

Outcome = Literal["answered", "overloaded", "failed"]

MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_FIRST_EVENT_BYTES = 1024 * 1024
EVENT_STREAM = "text/event-stream"

Failure = Literal["", "unreachable", "timeout", "garbage", "too_long"]


class RateLimit:
    """Admits the tries of one gateway to one server, at most `most` at the same time.

    The next try is that of the client with the fewest tries under way, or of the one that waits longest for its turn
    among equals. So no client keeps the others waiting for all of its own tries.
    """

    def __init__(self, most: int) -> None:
        self.limit = float(START)
        """Tries at the same time, of which the whole part counts."""
        self._most = most
        self._doubling = True
        """Slow start until the first cut: every answer allows one more try, so a round of answers doubles the limit."""
        self._cuts = 0
        self._not_before = 0.0
        self._busy: Counter[Hashable] = Counter()
        self._turns = 0
        self._last_turn: dict[Hashable, int] = {}
        """Of the clients that wait or have just had a turn."""
        self._waiting: dict[asyncio.Future[int], Hashable] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def begin(self, client: Hashable) -> int:
        """Wait until a try may begin, and return the number of cuts so far; every try has to be ended."""
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
        """End a try that began at `began` cuts; `pause` is what the server asks for with an overload, in seconds.

        The tries of one round all meet the same overload, so only the first of them cuts. Answers to tries from before
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
    """The remaining chunks of a stream, until the try's time is over.

    Raises, while it is read:
        httpx.RequestError: the server broke off.
        TimeoutError: the try's time is over.
    """

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
    """The server's; 0 if no usable answer came."""
    media_type: str = "application/json"
    body: bytes = b""
    """The whole answer, also one of another shape, or the beginning of a stream."""
    rest: Rest | None = None
    """The remainder, if the answer is a stream."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    failure: Failure = ""
    why: str = ""
    """The reason of a failure."""

    @property
    def overloaded(self) -> bool:
        return self.status in OVERLOADED

    @property
    def passing(self) -> bool:
        failed = self.failure in ("unreachable", "timeout", "garbage")
        return failed or self.status in (408, 429) or self.status >= 500


async def ask(backend: Backend, body: bytes, headers: httpx.Headers, wire_format: WireFormat, seconds: float) -> Reply:
    """Make one try of at most so many seconds; every failure is a reply."""
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(deadline):
            return await _fetch(backend, body, headers, wire_format, deadline)
    except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        return Reply(failure="unreachable", why=f"cannot be reached ({type(error).__name__})")
    except (TimeoutError, httpx.TimeoutException):
        return Reply(failure="timeout", why=f"did not answer within {seconds:g} s")
    except (NotUsable, httpx.DecodingError) as error:
        return Reply(failure="garbage", why=f"sent what is no answer: {error}")
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
            # A client would follow a redirect, or take another status for a success.
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
        document = parsed(text)
        if wire_format.is_answer(document):
            return Reply(response.status_code, media_type, wire_format.whole(document, text))
        if status := failure_http_status(document):
            return Reply(status, media_type, text)
        return Reply(failure="garbage", why="sent what is no answer: a JSON object of another shape", body=text)
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
    """Return 200 and the bytes up to the chunk that completes the first event's data, or a failure that it reports."""
    head = bytearray()
    async for chunk in chunks:
        head += chunk
        *lines, _ = head.split(b"\n")
        data = next((line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")), None)
        if data is not None:
            document = parsed(bytes(data))
            if wire_format.is_event(document):
                return 200, bytes(head)
            if status := failure_http_status(document):
                return status, bytes(data)
            raise NotUsable("a stream that begins with another shape")
        if len(head) > MAX_FIRST_EVENT_BYTES:
            break
    raise NotUsable("a stream without an event")


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds that the header Retry-After asks for, as a number or as a date."""
    text = response.headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text).timestamp()
        now = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
    return max(0.0, moment - now)
