import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from skillopt_airflow.gateway import rate_limiter
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.rate_limit import START
from skillopt_airflow.gateway.rate_limiter import RateLimiter
from skillopt_airflow.gateway.shared_state import SharedState, State, _OnHost
from tests.gateway.gateway_rig import MODEL, PATH, upstream_at
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion, events, failure

SERVER = "provider"


def look(state: State) -> tuple[State, State]:
    return state, state


def test_no_more_begin_than_the_pace_allows_and_they_begin_in_order():
    async def scene() -> None:
        limiter = RateLimiter(SharedState(), SERVER, 1000, 1000)
        began: list[int] = []

        async def one(number: int) -> None:
            turn = await limiter.begin()
            began.append(number)
            await asyncio.sleep(0)
            running.append(turn)

        running: list[Any] = []
        tasks = [asyncio.ensure_future(one(number)) for number in range(START + 5)]
        while len(running) < START:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert began == list(range(START))
        # An answer makes room for itself and, in slow start, for one more.
        await limiter.end(running[0], "answered")
        while len(running) < START + 2:
            await asyncio.sleep(0.001)
        await limiter.end(running[1], "failed")
        while len(running) < START + 3:
            await asyncio.sleep(0.001)
        await limiter.end(running[2], "overloaded")
        await asyncio.sleep(0.05)
        assert began == list(range(START + 3))
        for task in tasks[START + 3 :]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scene())


def test_who_gives_up_waiting_holds_no_turn():
    async def scene() -> None:
        shared_state = SharedState()
        limiter = RateLimiter(shared_state, SERVER, 1, 1)
        first = await limiter.begin()
        waiting = [asyncio.ensure_future(limiter.begin()) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await limiter.end(first, "answered")
        assert sum((await shared_state.update(look)).limit(SERVER).busy.values()) == 0
        await limiter.begin()

    asyncio.run(scene())


def test_a_turn_is_given_back_by_a_task_that_is_being_cancelled():
    async def scene() -> None:
        shared_state = SharedState()
        limiter = RateLimiter(shared_state, SERVER, 1, 1)

        async def work() -> None:
            turn = await limiter.begin()
            try:
                await asyncio.sleep(600)
            finally:
                asyncio.current_task().cancel()
                await limiter.end(turn, "failed")

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(10):
            await limiter.begin()

    asyncio.run(scene())


class Side(SharedState):
    """One of several gateways on a host."""

    def __init__(self, me: str, host: SharedState) -> None:
        super().__init__()
        self.me = me
        self._host = host

    async def update(self, change: Any) -> Any:
        return await self._host.update(change)


class Sides:
    """A gateway of the steps, and one that gives way to it, at a server with so many slots."""

    def __init__(self, slots: int) -> None:
        host = SharedState()
        self.steps = RateLimiter(Side("steps", host), SERVER, slots, slots)
        self.patient = RateLimiter(Side("patient", host), SERVER, slots, slots, gives_way=True)
        self.began: list[str] = []

    async def one(self, name: str, seconds: float = 0.0) -> None:
        limiter = self.steps if name == "steps" else self.patient
        turn = await limiter.begin()
        self.began.append(name)
        await asyncio.sleep(seconds)
        await limiter.end(turn, "answered")


def test_a_slot_that_who_gives_way_lets_free_goes_to_a_try_that_waits(monkeypatch):
    # No claim ends while the clock stands still.
    monkeypatch.setattr(rate_limiter, "time", SimpleNamespace(time=lambda: 1000.0))

    async def scene() -> list[str]:
        sides = Sides(slots=3)
        patient = [asyncio.ensure_future(sides.one("patient", 0.3)) for _ in range(9)]
        await asyncio.sleep(0.1)
        steps = [asyncio.ensure_future(sides.one("steps", 0.3)) for _ in range(6)]
        await asyncio.gather(*patient, *steps)
        return sides.began

    began = asyncio.run(scene())
    # Three began before anybody else was there. From then on one slot in three is theirs until the others are through.
    assert began[:3] == ["patient"] * 3
    assert began[3:12].count("steps") >= 5


def test_who_gives_way_is_never_without_a_try_for_long():
    async def scene() -> list[str]:
        sides = Sides(slots=3)
        busy = [asyncio.ensure_future(sides.one("steps", 0.2)) for _ in range(60)]
        await asyncio.sleep(0.1)
        patient = [asyncio.ensure_future(sides.one("patient", 0.2)) for _ in range(3)]
        async with asyncio.timeout(20):
            await asyncio.gather(*patient)
        for task in busy:
            task.cancel()
        return sides.began

    assert asyncio.run(scene()).count("steps") < 40


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
def gateways(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with ExitStack() as stack:

        def make(answer: Any, count: int, **settings: Any) -> list[httpx.Client]:
            provider = stack.enter_context(ScriptedProvider(answer))
            paths = [tmp_path / f"{number}.sock" for number in range(count)]
            for path in paths:
                given = {"max_attempts": 3, "call_timeout": 20.0, "on_call": lambda call: None} | settings
                stack.enter_context(
                    ModelGateway(upstream_at(provider.base_url), path, stage="test", shared_by="run", **given)
                )
            return [stack.enter_context(client_of(path)) for path in paths]

        yield make


def client_of(path: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://gateway", timeout=60)


def post(client: httpx.Client) -> int:
    return client.post(PATH, json={"model": MODEL}).status_code


def test_the_gateways_of_a_run_stay_below_their_common_limit_together(gateways):
    crowd = Crowd()
    pause = threading.Event()

    def answer(asked: Asked) -> Reply:
        with crowd.one_more():
            pause.wait(0.1)
            return completion("x")

    clients = gateways(answer, 3, max_concurrency=4)
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(post, clients * 20)) == [200] * 60
    assert crowd.most == 4


def test_a_gateway_stays_below_its_share_whatever_the_others_leave(gateways):
    crowd, pause = Crowd(), threading.Event()

    def answer(asked: Asked) -> Reply:
        with crowd.one_more():
            pause.wait(0.1)
            return completion("x")

    (client,) = gateways(answer, 1, max_concurrency=8, share=3)
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(post, [client] * 24)) == [200] * 24
    assert crowd.most == 3


def test_a_try_updates_the_state_as_it_begins_and_as_it_ends(gateways, monkeypatch):
    updates: list[str] = []
    update = _OnHost.update

    async def counted(self: _OnHost, change: Any) -> Any:
        updates.append(self.me)
        return await update(self, change)

    monkeypatch.setattr(_OnHost, "update", counted)
    replies = {1: failure(500), 2: Reply(headers={"content-type": "text/event-stream"}, chunks=events({"choices": []}))}
    (client,) = gateways(lambda asked: replies.get(asked.number, completion("x")), 1)
    made: list[int] = []
    for _ in range(3):
        assert post(client) == 200
        made.append(len(updates) - sum(made))
    # The first call needs two tries.
    assert made == [4, 2, 2]


def test_an_overload_that_one_gateway_meets_slows_the_others(gateways):
    crowd, full, release = Crowd(), threading.Event(), threading.Event()

    def answer(asked: Asked) -> Reply:
        if asked.number <= 3:
            return failure(429, **{"retry-after": "0"})
        if asked.number == 4:
            return completion("x")
        with crowd.one_more():
            if asked.number == 4 + START // 8:
                full.set()
            release.wait(30)
            return completion("x")

    one, other = gateways(answer, 2, max_attempts=4)
    # Three rounds are overloaded, so that the limit is halved three times.
    assert post(one) == 200
    with ThreadPoolExecutor(START) as pool:
        waiting = [pool.submit(post, other) for _ in range(START)]
        assert full.wait(30)
        release.wait(0.3)
        assert crowd.most == START // 8
        release.set()
        assert [call.result() for call in waiting] == [200] * START
