import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from local import processes, services
from local.environment import HOME_VARIABLE
from local.home import Home
from skillopt_airflow.core.errors import PlatformError

# Services outlive the process that started them, which is what Python warns of.
pytestmark = [
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SLEEP = "import time; time.sleep(600)"
FORK_AND_SLEEP = f"import os; os.fork(); {SLEEP}"


@pytest.fixture(autouse=True)
def _ended(home: Home) -> Iterator[None]:
    yield
    processes.end(processes.of_home(home), grace=5)


def service(home: Home, code: str, **variables: str) -> services.Service:
    return services.Service("sleeper", (sys.executable, "-c", code), {HOME_VARIABLE: str(home.root), **variables})


def test_a_second_start_finds_the_first_unless_it_has_another_configuration(home: Home):
    found = []
    for variables in ({}, {}, {"SOMETHING": "else"}):
        _, started = services.ensure_process(home, service(home, SLEEP, **variables))
        found.append((started, services.running(home, "sleeper")))
    (first, main), second, (third, other) = found
    assert (first, second, third) == (True, (False, main), True)
    assert other != main


def test_other_code_starts_it_anew(home: Home, tmp_path: Path):
    package, lock = tmp_path / "package", tmp_path / "lock.txt"
    (package / "core").mkdir(parents=True)
    lock.write_text("thing==1")
    (package / "core" / "rules.py").write_text("LEVEL = 1")

    def starts() -> bool:
        return services.ensure_process(home, replace(service(home, SLEEP), sources=(lock, package)))[1]

    assert [starts(), starts()] == [True, False]
    compiled = package / "core" / "__pycache__"
    compiled.mkdir()
    # Python writes it under another name first.
    (compiled / "rules.cpython-311.pyc.140").write_bytes(b"compiled")
    assert not starts()
    (package / "core" / "rules.py").write_text("LEVEL = 2")
    assert [starts(), starts()] == [True, False]
    lock.write_text("thing==2")
    assert [starts(), starts()] == [True, False]


def test_what_a_killed_service_left_behind_ends_with_the_next_start(home: Home):
    services.ensure_process(home, service(home, FORK_AND_SLEEP))
    main = services.running(home, "sleeper")
    assert main is not None
    services.wait(home, "sleeper", lambda: bool(main.children()), Event(), 30, main.is_running)
    orphans = main.children()
    main.kill()
    main.wait()
    assert services.running(home, "sleeper") is None
    assert all(processes.is_alive(orphan) for orphan in orphans)

    services.ensure_process(home, service(home, SLEEP))
    assert not any(processes.is_alive(orphan) for orphan in orphans)


def test_a_service_that_ends_shows_its_last_words(home: Home):
    failing = service(home, "import sys; sys.exit('no such thing')")
    with pytest.raises(PlatformError, match=r"(?s)sleeper ended at once.*no such thing"):
        services.ensure(home, failing, lambda: False, Event(), seconds=60)


def test_a_cancelled_start_does_not_wait(home: Home):
    cancelled = Event()
    cancelled.set()
    with pytest.raises(PlatformError, match="cancelled"):
        services.ensure(home, service(home, SLEEP), lambda: False, cancelled, seconds=600)


def test_processes_of_another_home_are_not_touched(home: Home, tmp_path: Path):
    other = Home.at(tmp_path / "other")
    other.prepare()
    services.ensure_process(other, service(other, SLEEP))
    processes.end(processes.of_home(home), grace=5)
    neighbours = processes.of_home(other)

    assert len(neighbours) == 1
    processes.end(neighbours, grace=5)
    assert not processes.of_home(other)
