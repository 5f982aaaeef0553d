import asyncio

import pytest

from skillopt_airflow.gateway.held_bytes import HeldBytes

LONGEST = 900


async def received(room: HeldBytes, name: str, peaks: list[int]) -> None:
    """Arrive in chunks of 100 bytes, beside others, and be answered a moment later."""
    try:
        for count in [*[100] * (LONGEST // 100), 0]:
            await room.take(name, count)
            peaks.append(peaks[-1] + count)
            await asyncio.sleep(0)
        room.arrived(name)
        await asyncio.sleep(0)
        peaks.append(peaks[-1] - LONGEST)
    finally:
        room.release(name)


@pytest.mark.parametrize("most", [LONGEST, 1000, 1500, 20_000])
def test_requests_that_arrive_side_by_side_all_find_room_in_the_end(most):
    async def all_of_them() -> list[int]:
        room, peaks = HeldBytes(most, LONGEST), [0]
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(received(room, f"r{number}", peaks))
        return peaks

    peaks = asyncio.run(all_of_them())
    assert peaks[-1] == 0
    assert max(peaks) <= most


def test_one_that_goes_away_while_it_waits_leaves_its_room_to_the_others():
    async def one_goes() -> list[int]:
        room, peaks = HeldBytes(1000, LONGEST), [0]
        await room.take("stays", 900)
        room.arrived("stays")
        gone = asyncio.create_task(received(room, "gone", [0]))
        waiting = asyncio.create_task(received(room, "waiting", peaks))
        await asyncio.sleep(0.01)
        assert peaks == [0]
        gone.cancel()
        await asyncio.sleep(0.01)
        assert peaks == [0, 100]
        room.release("stays")
        async with asyncio.timeout(5):
            await waiting
        return peaks

    assert asyncio.run(one_goes())[-1] == 0
