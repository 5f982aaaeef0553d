"""Judging what a target left, which is not to be trusted: files in a process with limits, repositories by tests.

The tests of a repository run in a second container of the item's own image.
"""

import logging
import signal
from collections.abc import Callable, Mapping
from functools import cache
from typing import NoReturn

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import DataError, ProcessLost, SandboxError
from skillopt_airflow.core.values.types import Item, Rollout, Score, Status, Trajectory, Value
from skillopt_airflow.limited_process import LimitedProcess, Limits
from skillopt_airflow.tasks.protocols import Benchmark, JudgesFiles, JudgesRepository
from skillopt_airflow.tasks.repository_tests import PATCH_FILE, RepositoryTestRun, RepositoryTests
from skillopt_airflow.tasks.scoring.scoring_rule import score_safely

LIMITS = Limits(megabytes=1024, cpu_seconds=30, wall_seconds=60)
PRODUCED, REFERENCES = "produced", "references"
LIBRARIES = {"OPENPYXL_LXML": "False", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
"""openpyxl then parses with defusedxml, which refuses entities; no address space for threads that nobody needs."""

_UNREADABLE = (
    f"what the target left could not be read within {LIMITS.cpu_seconds} s and {LIMITS.megabytes} MB: leave a plain "
    "workbook of the size that the task asks for"
)

log = logging.getLogger(__name__)


class Case(Value):
    """One item to judge, without its files."""

    benchmark: str
    item: Item
    trajectory: Trajectory


def score_of(
    name: str,
    benchmark: Benchmark,
    item: Item,
    trajectory: Trajectory,
    produced: Mapping[str, bytes],
    references: Callable[[], Mapping[str, bytes]],
) -> Score:
    """Return the score of an `ok` trajectory, by the files that it left where the benchmark judges files.

    Args:
        references: reads the item's reference files; called only where files are judged.

    Raises:
        SandboxError: as `judge`.
    """
    if isinstance(benchmark, JudgesFiles):
        return judge(Case(benchmark=name, item=item, trajectory=trajectory), produced, references())
    return score_safely(trajectory.answer, lambda: benchmark.score(item, trajectory))


def judge(case: Case, produced: Mapping[str, bytes], references: Mapping[str, bytes]) -> Score:
    """Return the score of what the target left; 0 where the process does not survive it, which is the target's doing.

    Raises:
        SandboxError: the process cannot start, gets too little of the processors, is killed, or fails without the
            target's files too.
    """
    score = _judged(case, produced, references)
    if score is not None:
        return score
    if _judged(case, {}, references) is None:
        _failed(case, "the judge fails without any file of the target's, so its reference files are at fault")
    return Score(hard=0.0, soft=0.0, feedback=_UNREADABLE)


def _judged(case: Case, produced: Mapping[str, bytes], references: Mapping[str, bytes]) -> Score | None:
    """Return the score, or None if the process failed, or used up what it may over the files."""
    # Not at the top, since the process that judges needs none of it.
    from skillopt_airflow.sandbox.staging import temporary_folder

    with temporary_folder() as held:
        folder = held / "judge"
        folder.mkdir()
        for part, contents in ((PRODUCED, produced), (REFERENCES, references)):
            (folder / part).mkdir()
            for file, content in contents.items():
                (folder / part / file).write_bytes(content)
        env = {"HOME": str(folder), "TMPDIR": str(folder), **LIBRARIES}
        env[benchmarks.LIST_VARIABLE] = str(benchmarks.folder(case.benchmark).absolute())
        with LimitedProcess("skillopt_airflow.training.rollouts.judging:judged_here", LIMITS, folder, env) as judge:
            try:
                judge.call(b"", case.benchmark)
            except ProcessLost as error:
                _failed(case, f"the judge did not get ready: {error} {error.error_output}")
            return _answer(judge, case)


def _answer(judge: LimitedProcess, case: Case) -> Score | None:
    try:
        return Score.model_validate_json(judge.call(case.model_dump_json().encode(), case.benchmark))
    except ProcessLost as error:
        if error.status is None:
            # It cannot wait for anything but a processor, of which it may use half that time.
            _failed(case, f"the judge: {error}")
        if error.status == -signal.SIGKILL:
            _failed(case, "the judge was killed, as the kernel does where the worker's memory ends")
        log.warning("Item %s: the judge: %s: %s", case.item.id, error, error.error_output)
    except DataError as error:
        log.warning("Item %s: the judge refuses its files: %s", case.item.id, error)
    return None


def judged_here(case: bytes, name: str) -> bytes:
    """Return the Score of a Case by the folders below the working folder, as JSON; without a case get ready for one."""
    benchmark = _loaded(name)
    if not case:
        return b""
    known = Case.model_validate_json(case)
    return benchmark.score_files(known.item, known.trajectory, PRODUCED, REFERENCES).model_dump_json().encode()


@cache
def _loaded(name: str) -> JudgesFiles:
    benchmark = benchmarks.load(name)
    if not isinstance(benchmark, JudgesFiles):
        raise TypeError(f"{name} judges no files")
    return benchmark


def _failed(case: Case, why: str) -> NoReturn:
    raise SandboxError(f"item {case.item.id} of {case.benchmark} could not be judged: {why}")


RunTests = Callable[[Item, RepositoryTests], RepositoryTestRun]


def judged_repository(
    benchmark: JudgesRepository, item: Item, trajectory: Trajectory, produced: Mapping[str, bytes], run_tests: RunTests
) -> Rollout:
    """Return the rollout with the change as its answer; a `judge_error` where the tests could not be run.

    It is a `sandbox_error` where the answer cannot hold the change, which is to be made again then.

    Args:
        produced: what the target left; without it, when it is judged again, the change is the trajectory's answer.
    """
    # What is stored is Unicode, but a file of another encoding is only changed by its own bytes.
    left = produced.get(PATCH_FILE, trajectory.answer.encode())
    patch, exact = (left.decode(errors=errors) for errors in ("replace", "surrogateescape"))
    answered = trajectory.model_copy(update={"answer": patch})
    wanted = benchmark.tests(item, exact)
    if isinstance(wanted, Score):
        return Rollout(trajectory=answered, score=wanted)
    try:
        score = benchmark.score_tests(item, patch, run_tests(item, wanted))
    except SandboxError as error:
        # From what is stored, a judge would judge another change.
        again = Status.JUDGE_ERROR if patch == exact else Status.SANDBOX_ERROR
        failed = answered.model_copy(update={"status": again, "error": str(error)[:500]})
        return Rollout(trajectory=failed, score=None)
    return Rollout(trajectory=answered, score=score)


def engine_test_runner(
    limits: SandboxGroup,
    base: str,
    labels: Mapping[str, str],
    contents: Callable[[Item], Mapping[str, bytes]],
    docker_url: str | None,
) -> RunTests:
    """Return what runs tests on the engine of the sandboxes.

    Args:
        contents: reads the files that an item's image is built from.
        docker_url: address of the worker's own engine; that of its environment when None.
    """

    def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        from skillopt_airflow.sandbox.docker import connection as docker_connection
        from skillopt_airflow.sandbox.docker.item_images import ItemImages
        from skillopt_airflow.sandbox.judge_container import JudgeContainer

        engine = docker_connection.find_engine(limits.conn_id, docker_url)
        with engine.open_client() as client, docker_connection.engine_errors(engine.url):
            image = ItemImages(client, base, limits, contents).judge_image(item)
            return JudgeContainer(client, limits, {**labels, "part": "judge"}).run(item, image, wanted)

    return run
