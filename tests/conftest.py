import gc
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from platform_control import PROJECT, RunningPlatform, control, write_settings
from shared_resource import alone, shared

# An example may take long on a machine that does other work, so neither profile has a deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("random", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")

# The tests' data is in their own folders.
os.environ.setdefault("SKILLOPT_DEPLOYMENT", str(PROJECT / "tests/everything_allowed.yaml"))
# Ten looks a second, or three, take more of the processors than most tests on the platform.
os.environ.setdefault("AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME", "0.6")

BRINGS_A_BENCHMARK = "tests/pipeline/test_pictures_platform.py"
BUILDS_IMAGES = "tests/pipeline/test_methods_platform.py"
TOGETHER = {
    # They share a browser.
    "tests/ui/test_skills_browser.py": "tests/ui/test_browser.py",
    "tests/ui/test_rollouts_browser.py": "tests/ui/test_browser.py",
    "tests/ui/test_matrix_browser.py": "tests/ui/test_browser.py",
    # Both leave trajectories at the usual place.
    "tests/test_readme_platform.py": "tests/pipeline/test_training_platform.py",
    # An image is made anew when a benchmark has come or gone, also by `up` and `try`.
    "tests/local/test_image.py": BRINGS_A_BENCHMARK,
    "tests/local/test_platform.py": BRINGS_A_BENCHMARK,
    # It kills parts of the platform that the tests of tests/local/test_platform.py end.
    "tests/pipeline/test_faults_platform.py": BRINGS_A_BENCHMARK,
    "tests/local/test_try_benchmark.py": BRINGS_A_BENCHMARK,
    # What one of them removes may be what another builds on.
    "tests/rollout/harnesses/test_agent_clis.py": BUILDS_IMAGES,
    "tests/rollout/test_in_containers.py": BUILDS_IMAGES,
    "tests/rollout/test_repository_in_containers.py": BUILDS_IMAGES,
    "tests/sandbox/test_docker_runtime.py": BUILDS_IMAGES,
    "tests/sandbox/docker/test_item_images.py": BUILDS_IMAGES,
    "tests/sandbox/test_judge_container.py": BUILDS_IMAGES,
}
"""Files whose tests must not run at the same time, or have something in common that takes long to start."""

WHILE_IT_STARTS = "tests/sandbox/test_escapes.py"
"""A file whose tests need an engine alone, for the process that would wait while another one starts the platform."""
LONG = (
    "tests/ui/test_browser.py",
    "tests/pipeline/test_faults_platform.py",
    "tests/local/test_platform.py",
    "tests/pipeline/test_training_platform.py",
    "tests/pipeline/test_methods_platform.py",
    "tests/pipeline/test_repositories_platform.py",
    "tests/test_recipe_platform.py",
    "tests/test_training_loop.py",
    "tests/training/champion/test_nights.py",
    "tests/training/champion/test_killed_publishers.py",
    "tests/benchmarks/test_spreadsheetbench_data.py",
    "tests/training/rollouts/test_judging.py",
    "tests/training/test_officeqa_training.py",
)
"""Files whose tests take longest."""


def pytest_sessionstart() -> None:
    """Keep Python from looking for cycles while it imports all tests, which has hardly any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for cycles from now on, but not among what was imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put fast files first, and then what takes longest, on the platform or not: in the end no process works alone."""
    slow = {file_of(item) for item in items if item.get_closest_marker("slow") is not None}

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        file = file_of(item)
        return (
            item.get_closest_marker("platform") is None and file != WHILE_IT_STARTS,
            file in slow,
            -1 if file == WHILE_IT_STARTS else LONG.index(file) if file in LONG else len(LONG),
        )

    items.sort(key=place)


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, give the tests of a file to one process, one by one, and so those of files `TOGETHER`."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

        def _reschedule(self, node: Any) -> None:
            # A process that knows its next test is busy; with two left it would be given a file long before its time.
            if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
                super()._reschedule(node)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def each_table_is_checked_once() -> Iterator[None]:
    """Have Great Expectations look at equal tables once: hundreds of trainings are prepared on the same sample."""
    from skillopt_airflow.quality import quality_report

    found: dict[bytes, Any] = {}
    look = quality_report._outcomes

    def remembered(frame: Any, suite: Sequence[Any]) -> Any:
        asked = pickle.dumps((frame, repr(suite)))
        if asked not in found:
            found[asked] = look(frame, suite)
        return found[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality_report, "_outcomes", remembered)
        yield


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """An engine that has the sandbox image; one that the tests had to start ends with them."""
    from local import engine, image

    home = image.ROOT / ".local"
    own = engine.OwnEngine(home).url
    found: list[str] = []

    def start() -> bool:
        ours_ran = engine.answers(own)
        found.append(engine.ensure(home, print))
        image.ensure(home, found[0], print)
        return found == [own] and not ours_ran

    with shared(home, start, lambda: engine.stop(home)):
        yield found[0]


@pytest.fixture(scope="session")
def gateway_docker_host(docker_host: str) -> str:
    """The engine, which then has the gateway's image too, for engines from where the worker cannot be reached."""
    return with_images(docker_host, "gateway")


@pytest.fixture(scope="session")
def cli_docker_host(docker_host: str) -> str:
    """The engine, which then has the images of the agent CLIs too."""
    return with_images(docker_host, "codex", "claude_code")


def with_images(docker_host: str, *names: str) -> str:
    from local import image

    home = image.ROOT / ".local"
    with alone(home):
        image.ensure(home, docker_host, print, names)
    return docker_host


@pytest.fixture(scope="session")
def standin_url() -> Iterator[str]:
    """The base URL, /v1 included, of a stand-in that serves as long as the tests run."""
    from local.served import served
    from local.standin.server import StandInServer

    with served(StandInServer("127.0.0.1", 0)) as server:
        yield server.base_url


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, docker_host: str) -> Iterator[RunningPlatform]:
    """One platform for the whole session, in a home of its own; `@pytest.mark.parametrize` may name another home."""
    home = Path(getattr(request, "param", PROJECT / ".local" / "test"))

    write_settings(home)

    def start() -> bool:
        control(home, "up", DOCKER_HOST=docker_host)
        return True

    def stop() -> None:
        control(home, "down", DOCKER_HOST=docker_host)

    with shared(home, start, stop), closing(RunningPlatform(home)) as running, pytest.MonkeyPatch.context() as patch:
        # Three processes that wait for runs ask the API server more than all tasks do.
        patch.setattr("local.airflow_api.POLL_SECONDS", 2.0)
        yield running


@pytest.fixture(scope="session")
def own(docker_host: str) -> Iterator[RunningPlatform]:
    """A platform that a test may kill parts of: no other test's trainings run on it."""
    root = Path(tempfile.mkdtemp(prefix="skillopt-platform-"))
    write_settings(root)
    control(root, "up", DOCKER_HOST=docker_host)
    with closing(RunningPlatform(root)) as running:
        yield running
    control(root, "down", DOCKER_HOST=docker_host)
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def plain_started(platform: RunningPlatform, testrun_uid: str) -> Any:
    """A short run that nothing happens to, the same for all processes of the tests; it may still be under way."""
    from tests.pipeline.trained_run import DAG, SHORT, TrainedRun

    name = f"plain-{testrun_uid}"
    with alone(platform.home.root):
        platform.api.wait_for_dag(DAG)
        if name not in {row["dag_run_id"] for row in platform.api.runs(DAG)}:
            TrainedRun.trigger(platform, name, SHORT | {"storage.prefix": f"{name}/"})
    return TrainedRun(platform, name, f"{name}/")


@pytest.fixture(scope="session")
def plain(plain_started: Any) -> Any:
    """A short run that nothing happened to, for comparison with those that something did."""
    return plain_started.wait()
