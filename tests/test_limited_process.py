"""A process with limits for files of strangers."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillopt_airflow import limited_process
from skillopt_airflow.core.errors import DataError, ProcessLost
from skillopt_airflow.limited_process import LimitedProcess, Limits

LIMITS = Limits(megabytes=200, cpu_seconds=1, wall_seconds=30)
SOURCE = """
import time
from skillopt_airflow.core.errors import DataError

print("imported")

def act(content: bytes, what: str) -> bytes:
    if what == "echo":
        return content
    if what == "refuse":
        raise DataError("no such page")
    if what == "memory":
        return bytes(10**9)
    if what == "loop":
        while True:
            pass
    if what == "sleep":
        time.sleep(60)
    if what == "print":
        print("noise")
        return b"quiet"
    raise ValueError(what)
"""


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "strange.py").write_text(SOURCE)
    monkeypatch.setattr(limited_process, "PACKAGES", f"{limited_process.PACKAGES}:{tmp_path}")
    return "strange:act"


def test_one_process_answers_many_calls(function: str) -> None:
    with LimitedProcess(function, LIMITS) as process:
        large = os.urandom(5_000_000)
        assert [process.call(body, "echo") for body in (b"", b"\n{}", large)] == [b"", b"\n{}", large]
        assert process.call(b"", "print") == b"quiet"
        with pytest.raises(DataError, match="no such page"):
            process.call(b"x", "refuse")
        assert process.call(b"after", "echo") == b"after"


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["memory", "loop", "break"])
def test_a_process_that_a_file_ends_is_started_again(function: str, what: str) -> None:
    with LimitedProcess(function, LIMITS) as process:
        with pytest.raises(ProcessLost) as lost:
            process.call(b"", what)
        assert lost.value.status not in (None, 0)
        assert process.call(b"next", "echo") == b"next"


@pytest.mark.nightly
def test_time_is_limited_where_no_processor_is_used(function: str) -> None:
    started = time.monotonic()
    with LimitedProcess(function, LIMITS._replace(wall_seconds=2)) as process, pytest.raises(ProcessLost) as lost:
        process.call(b"", "sleep")
    assert lost.value.status is None
    assert time.monotonic() - started < 30


def test_two_calls_run_at_the_same_time(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most, running, lock = 0, 0, threading.Lock()
    answer = LimitedProcess._answer

    def counted(*given: object) -> bytes:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        try:
            return answer(*given)  # type: ignore[arg-type]
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(LimitedProcess, "_answer", counted)

    def call(body: bytes) -> bytes:
        with LimitedProcess(function, LIMITS) as process:
            return process.call(body, "echo")

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(call, [b"x"] * 6)) == [b"x"] * 6
    assert most == limited_process.MAX_CONCURRENT
