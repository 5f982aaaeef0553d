import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.one_try import START, RateLimit
from tests.gateway.gateway_rig import MODEL, PATH, upstream_at
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion

MOST = 4 * START
ME = "client"


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test that is a coroutine."""
    return lambda: asyncio.run(scene())


async def round_of(limit: RateLimit, how: Any, tries: int) -> None:
    """Tries one after the other, which end all alike."""
    for _ in range(tries):
        limit.end(ME, await limit.begin(ME), how)


@played
async def test_a_round_of_answers_doubles_the_limit_until_the_first_overload() -> None:
    limit = RateLimit(MOST)
    assert limit.limit == START
    await round_of(limit, "answered", START)
    assert limit.limit == 2 * START
    await round_of(limit, "answered", 1000)
    assert limit.limit == MOST


@played
async def test_after_an_overload_a_round_of_answers_adds_about_one() -> None:
    limit = RateLimit(MOST)
    await round_of(limit, "answered", START)
    await round_of(limit, "overloaded", 1)
    assert limit.limit == START
    await round_of(limit, "answered", START)
    assert START + 0.9 < limit.limit <= START + 1


@played
async def test_tries_of_one_round_cut_only_once() -> None:
    limit = RateLimit(MOST)
    for began in [await limit.begin(ME) for _ in range(5)]:
        limit.end(ME, began, "overloaded")
    assert limit.limit == START / 2
    await round_of(limit, "overloaded", 1)
    assert limit.limit == START / 4


@played
async def test_answers_from_before_the_cut_do_not_raise_the_new_limit() -> None:
    limit = RateLimit(MOST)
    one, two = await limit.begin(ME), await limit.begin(ME)
    limit.end(ME, one, "overloaded")
    limit.end(ME, two, "answered")
    assert limit.limit == START / 2


@played
async def test_the_longest_pause_that_was_asked_for_holds_for_all() -> None:
    limit, loop = RateLimit(MOST), asyncio.get_running_loop()
    one, two = await limit.begin(ME), await limit.begin(ME)
    asked = loop.time()
    limit.end(ME, one, "overloaded", 0.2)
    limit.end(ME, two, "overloaded", 0.05)
    await asyncio.gather(*(limit.begin(client) for client in "abc"))
    assert loop.time() - asked >= 0.2


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["answered", "overloaded", "failed"]), st.integers(0, 9)), max_size=60))
def test_the_limit_stays_between_one_and_the_most(steps):
    @played
    async def scene() -> None:
        limit, running = RateLimit(MOST), list[int]()
        for how, which in steps:
            before = limit.limit
            running.append(await limit.begin(ME))
            limit.end(ME, running.pop(which % len(running)), how)
            assert 1 <= limit.limit <= MOST
            assert (limit.limit <= before) if how == "overloaded" else (limit.limit >= before)

    scene()


@played
async def test_no_more_begin_than_the_limit_allows_and_they_begin_in_order() -> None:
    limit, began = RateLimit(1000), dict[int, int]()

    async def one(number: int) -> None:
        began[number] = await limit.begin(ME)

    tasks = [asyncio.ensure_future(one(number)) for number in range(START + 5)]
    await asyncio.sleep(0.02)
    assert list(began) == list(range(START))
    # An answer makes room for itself and, in slow start, for one more; a failure only for itself.
    for how, more in (("answered", 2), ("failed", 1), ("overloaded", 0)):
        before = len(began)
        limit.end(ME, 0, how)
        await asyncio.sleep(0.02)
        assert list(began) == list(range(before + more))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@played
async def test_a_try_that_stops_waiting_takes_no_place() -> None:
    limit = RateLimit(1)
    first = await limit.begin(ME)
    waiting = [asyncio.ensure_future(limit.begin(ME)) for _ in range(3)]
    await asyncio.sleep(0.01)
    # One is cancelled before its place is free, one after it was given the place, and one never.
    waiting[0].cancel()
    limit.end(ME, first, "answered")
    waiting[1].cancel()
    async with asyncio.timeout(10):
        assert await waiting[2] == 0
        limit.end(ME, 0, "answered")
        await limit.begin(ME)


class Crowd:
    """Counts the requests that a server works on at the same time."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1


@pytest.fixture
def opened(tmp_path):
    """Opens a gateway with sockets of as many sandboxes, and returns a client of each."""
    with ExitStack() as stack:

        def make(answer: Any, sockets: int, **settings: Any) -> list[httpx.Client]:
            provider = stack.enter_context(ScriptedProvider(answer))
            given = {"max_attempts": 4, "call_timeout": 20.0, "on_call": lambda call: None} | settings
            gateway = stack.enter_context(ModelGateway(upstream_at(provider.base_url), stage="test", **given))
            paths = [tmp_path / f"{number}.sock" for number in range(sockets)]
            for path in paths:
                stack.enter_context(gateway.listening(path, 16))
            transports = [httpx.HTTPTransport(uds=str(path)) for path in paths]
            clients = [httpx.Client(transport=one, base_url="http://gateway", timeout=60) for one in transports]
            return [stack.enter_context(client) for client in clients]

        yield make


def post(client: httpx.Client) -> int:
    return client.post(PATH, json={"model": MODEL}).status_code


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"max_concurrency": 4}, {"max_concurrency": 8, "share": 4}])
def test_the_sockets_of_a_task_stay_below_its_limit_together(opened, limits):
    crowd, pause = Crowd(), threading.Event()

    def answer(asked: Asked) -> Reply:
        with crowd.one_more():
            pause.wait(0.1)
            return completion("x")

    clients = opened(answer, 3, **limits)
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(post, clients * 10)) == [200] * 30
    assert crowd.most == 4
