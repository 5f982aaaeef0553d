"""One call to the model server, with its tries: 429, 5xx, broken connections and time-outs are asked again."""

import asyncio
import random
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
)

from include.models.upstream import Upstream

PATHS = {"openai-chat": "chat/completions", "openai": "responses", "anthropic": "messages"}
"""Below the base address, by dialect."""
PASSED_HEADERS = ("accept", "content-type", "anthropic-version", "anthropic-beta")
FIRST_PAUSE = 0.5
Failure = (httpx.TransportError, TimeoutError)


@dataclass
class Try:
    """Where a call stands: the last answer, or the last failure, after so many tries."""

    attempts: int
    response: httpx.Response | None = None
    failure: BaseException | None = None


class Provider:
    """The model server behind an upstream; holds a connection pool, so it is a context manager."""

    def __init__(self, upstream: Upstream, *, max_attempts: int, call_timeout: float) -> None:
        self._upstream = upstream
        self._max_attempts = max_attempts
        self._call_timeout = call_timeout
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(timeout=call_timeout, limits=limits)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)

    async def send(self, body: bytes, headers: httpx.Headers) -> Try:
        """The outcome of the last try; an event stream's body is still unread, any other is read."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._max_attempts),
            wait=self._pause,
            retry=retry_if_exception_type(Failure) | retry_if_result(_asks_again),
            retry_error_callback=_last,
        )
        try:
            response: httpx.Response = await retrying(self._send_once, body, headers)
        except Failure as failure:
            return Try(retrying.statistics["attempt_number"], failure=failure)
        return Try(retrying.statistics["attempt_number"], response=response)

    async def _send_once(self, body: bytes, headers: httpx.Headers) -> httpx.Response:
        url = f"{self._upstream.base_url.rstrip('/')}/{PATHS[self._upstream.dialect]}"
        passed = {name: headers[name] for name in PASSED_HEADERS if name in headers}
        request = self._client.build_request("POST", url, content=body, headers=passed | self._credentials())
        async with asyncio.timeout(self._call_timeout):
            response = await self._client.send(request, stream=True)
            if not (response.is_success and is_stream(response)):
                await response.aread()
        return response

    def _credentials(self) -> dict[str, str]:
        key = self._upstream.api_key.get_secret_value()
        if not key:
            return {}
        return {"x-api-key": key} if self._upstream.dialect == "anthropic" else {"authorization": f"Bearer {key}"}

    def _pause(self, state: RetryCallState) -> float:
        """What the provider asks for, else jittered exponential; never more than one try may take."""
        asked = None
        if state.outcome is not None and not state.outcome.failed:
            asked = retry_after(state.outcome.result())
        backoff = FIRST_PAUSE * 2 ** (state.attempt_number - 1) * random.uniform(0.5, 1.5)  # noqa: S311
        return min(backoff if asked is None else asked + random.uniform(0, FIRST_PAUSE), self._call_timeout)  # noqa: S311


def is_stream(response: httpx.Response) -> bool:
    """Whether the answer comes as server-sent events."""
    media_type: str = response.headers.get("content-type", "")
    return media_type.startswith("text/event-stream")


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that the header Retry-After asks for, as a number or as a date."""
    text = response.headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text).timestamp()
        now = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None
    return max(0.0, moment - now)


def _asks_again(response: httpx.Response) -> bool:
    return response.status_code in (408, 429) or response.status_code >= 500


def _last(state: RetryCallState) -> httpx.Response | None:
    """The last outcome instead of tenacity's own error: returned if it is an answer, raised if not."""
    return None if state.outcome is None else state.outcome.result()
