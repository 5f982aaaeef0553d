"""Score untrusted results of a target: files in a limited process, repositories by their tests.

A repository's tests run in a second container of the item's image.
"""

import logging
import signal
from collections.abc import Callable, Mapping
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
"""openpyxl then parses with defusedxml, which refuses entities; one thread saves address space."""

_UNREADABLE = (
    f"the target's files could not be read within {LIMITS.cpu_seconds} s and {LIMITS.megabytes} MB: leave a plain "
    "workbook of the size that the task asks for"
)

log = logging.getLogger(__name__)


class Case(Value):
    """An item to score, without its files."""

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
    """Return the score of an `ok` trajectory; if the benchmark judges files, by them, and raise like `score_files`."""
    if isinstance(benchmark, JudgesFiles):
        return score_files(Case(benchmark=name, item=item, trajectory=trajectory), produced, references())
    return score_safely(trajectory.answer, lambda: benchmark.score(item, trajectory))


def score_files(case: Case, produced: Mapping[str, bytes], references: Mapping[str, bytes]) -> Score:
    """Return the score of the target's files; 0 if they crash the process.

    Raises:
        SandboxError: the process cannot start, gets too little CPU time, is killed, or also fails without the
            target's files.
    """
    score = _process_score(case, produced, references)
    if score is not None:
        return score
    if _process_score(case, {}, references) is None:
        _raise_error(case, "the judge also fails without the target's files, so the reference files are at fault")
    return Score(hard=0.0, soft=0.0, feedback=_UNREADABLE)


def _process_score(case: Case, produced: Mapping[str, bytes], references: Mapping[str, bytes]) -> Score | None:
    """Return the score; None if the process failed or exceeded its limits."""
    # Imported here because the judge's process doesn't need it.
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
        with LimitedProcess(
            "skillopt_airflow.training.rollouts.judging:score_in_process", LIMITS, folder, env
        ) as judge:
            try:
                judge.call(b"", case.benchmark)
            except ProcessLost as error:
                _raise_error(case, f"the judge did not get ready: {error} {error.error_output}")
            return _answer(judge, case)


def _answer(judge: LimitedProcess, case: Case) -> Score | None:
    try:
        return Score.model_validate_json(judge.call(case.model_dump_json().encode(), case.benchmark))
    except ProcessLost as error:
        if error.status is None:
            # It waits only for CPU time, and may use half of the wall time.
            _raise_error(case, f"the judge: {error}")
        if error.status == -signal.SIGKILL:
            _raise_error(case, "the judge was killed, probably because the worker is out of memory")
        log.warning("Item %s: the judge: %s: %s", case.item.id, error, error.error_output)
    except DataError as error:
        log.warning("Item %s: the judge refuses its files: %s", case.item.id, error)
    return None


def score_in_process(case: bytes, name: str) -> bytes:
    """Return the Score of a Case as JSON, from the working folder's files; without a case only load the benchmark."""
    benchmark = benchmarks.load(name)
    if not case:
        return b""
    assert isinstance(benchmark, JudgesFiles)
    known = Case.model_validate_json(case)
    return benchmark.score_files(known.item, known.trajectory, PRODUCED, REFERENCES).model_dump_json().encode()


def _raise_error(case: Case, why: str) -> NoReturn:
    raise SandboxError(f"item {case.item.id} of {case.benchmark} could not be judged: {why}")


RunTests = Callable[[Item, RepositoryTests], RepositoryTestRun]


def score_repository(
    benchmark: JudgesRepository, item: Item, trajectory: Trajectory, produced: Mapping[str, bytes], run_tests: RunTests
) -> Rollout:
    """Return the rollout with the patch as its answer; a `judge_error` if the tests could not run.

    If the answer can't represent the patch, it's a `sandbox_error`, so that the rollout is made again. Without files
    (judging again), the patch is the trajectory's answer.
    """
    # Stored text is Unicode, but a file in another encoding needs its exact bytes.
    left = produced.get(PATCH_FILE, trajectory.answer.encode())
    patch, exact = (left.decode(errors=errors) for errors in ("replace", "surrogateescape"))
    answered = trajectory.model_copy(update={"answer": patch})
    wanted = benchmark.tests(item, exact)
    if isinstance(wanted, Score):
        return Rollout(trajectory=answered, score=wanted)
    try:
        score = benchmark.score_tests(item, patch, run_tests(item, wanted))
    except SandboxError as error:
        # Judging the stored text would judge another patch.
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
    """Return a function that runs tests on the sandboxes' engine; `contents` reads the files of an item's image."""

    def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        from skillopt_airflow.sandbox.docker import connection as docker_connection
        from skillopt_airflow.sandbox.docker.item_images import ItemImages
        from skillopt_airflow.sandbox.judge_container import JudgeContainer

        engine = docker_connection.find_engine(limits.conn_id, docker_url)
        with engine.open_client() as client, docker_connection.engine_errors(engine.url):
            image = ItemImages(client, base, limits, contents).judge_image(item)
            return JudgeContainer(client, limits, {**labels, "part": "judge"}).run(item, image, wanted)

    return run
