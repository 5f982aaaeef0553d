import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.gateway import locked_document, shared_state
from skillopt_airflow.gateway.locked_document import LockedDocument
from skillopt_airflow.gateway.shared_state import RateLimit, State, shared

SERVER = "provider"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The host's temporary folder, of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def folders(temporary: Path) -> list[Path]:
    return sorted(temporary.glob(f"{shared_state.PREFIX}*"))


def take(me: str, change: int = 1):
    return lambda limit: (limit.taken(me, change), None)


def look(state: State):
    return state, state


def busy(state: State) -> int:
    return sum(state.limit(SERVER).busy.values())


def test_gateways_of_one_run_share_and_others_do_not(temporary):
    async def scene() -> None:
        async with (
            shared("run 1") as one,
            shared("run 1") as two,
            shared("run 2") as other,
            shared("") as alone,
        ):
            for each in (one, two, other, alone):
                await each.update_limit(SERVER, take(each.me))
            states = [await each.update(look) for each in (one, two, other, alone)]
            assert [busy(state) for state in states] == [2, 2, 1, 1]
            assert len(folders(temporary)) == 2
            assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders(temporary))

    asyncio.run(scene())
    assert folders(temporary) == []


def test_updates_at_the_same_time_are_all_kept():
    async def scene() -> None:
        async with shared("run") as one, shared("run") as two:
            await asyncio.gather(*(each.update_limit(SERVER, take(each.me)) for each in (one, two) for _ in range(100)))
            assert busy(await one.update(look)) == 200

    asyncio.run(scene())


CHILD = """
import asyncio, sys
from skillopt_airflow.gateway.shared_state import shared

async def scene():
    async with shared("run") as mine:
        await mine.update_limit("provider", lambda limit: (limit.taken(mine.me, 5), None))
        print("there", flush=True)
        await asyncio.sleep(600)

asyncio.run(scene())
"""


@pytest.fixture
def child():
    """Another process with five tries under way."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_a_killed_process_held_is_free_again(child):
    async def scene() -> None:
        async with shared("run") as mine:
            assert busy(await mine.update(look)) == 5
            child.send_signal(signal.SIGKILL)
            child.wait()
            while busy(await mine.update(look)):
                await asyncio.sleep(0.05)
            # Also where the gateway that found it out changed nothing else.
            assert busy(await mine.update(look)) == 0

    asyncio.run(scene())


def test_a_process_that_is_stopped_still_lives(child):
    async def scene() -> None:
        async with shared("run") as mine:
            child.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.2 * shared_state.CENSUS_SECONDS)
            assert busy(await mine.update(look)) == 5

    asyncio.run(scene())


def test_what_killed_processes_left_is_removed_by_the_next_of_any_run(child, temporary):
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(folders(temporary)) == 1

    async def scene() -> None:
        async with shared("another run"):
            pass

    asyncio.run(scene())
    assert folders(temporary) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"limits": 3}', b"\xff"])
def test_a_broken_state_begins_anew(temporary, content):
    async def scene() -> None:
        async with shared("run") as mine:
            (folder,) = folders(temporary)
            LockedDocument(folder / "state").write(content)
            await mine.update_limit(SERVER, take(mine.me))
            assert busy(await mine.update(look)) == 1
            assert json.loads(LockedDocument(folder / "state").read())

    asyncio.run(scene())


@pytest.mark.parametrize("trap", ["link", "file"])
def test_a_folder_that_is_not_this_users_is_not_used(temporary, trap):
    async def join() -> None:
        async with shared("run"):
            (path,) = folders(temporary)
            places.append(path)

    places: list[Path] = []
    asyncio.run(join())
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    if trap == "link":
        places[0].symlink_to(elsewhere)
    else:
        places[0].write_text("mine")
    with pytest.raises(SandboxError, match="cannot meet"):
        asyncio.run(join())
    assert list(elsewhere.iterdir()) == []


def test_waiting_for_the_lock_does_not_stop_the_event_loop(temporary):
    async def scene() -> None:
        async with shared("run") as mine:
            (folder,) = folders(temporary)
            holder = subprocess.Popen(["flock", str(folder / "state"), "cat"], stdin=subprocess.PIPE)
            assert holder.stdin is not None
            while locked_document._try_lock(descriptor := os.open(folder / "state", os.O_RDWR)):
                os.close(descriptor)
                time.sleep(0.01)
            os.close(descriptor)
            waiting = asyncio.ensure_future(mine.update(look))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            holder.stdin.close()
            assert busy(await waiting) == 0
            holder.wait()

    asyncio.run(scene())


def test_a_gateway_without_tries_under_way_takes_no_room():
    limit = RateLimit().taken("x", 2).taken("y", 1)
    assert limit.taken("x", -1).busy == {"x": 1, "y": 1}
    assert limit.taken("x", -2) == RateLimit(busy={"y": 1})
    assert limit.taken("z", -1) == limit


def test_what_is_gone_leaves_every_lane():
    state = State(limits={"a": RateLimit(busy={"x": 1, "y": 2}), "b": RateLimit(busy={"x": 3})})
    assert state.without(frozenset({"x"})).limits == {"a": RateLimit(busy={"y": 2}), "b": RateLimit()}
