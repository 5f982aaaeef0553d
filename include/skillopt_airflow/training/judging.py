"""Judging files that a target left, in a process with limits: a workbook from a sandbox is not to be trusted.

`python -m skillopt_airflow.training.judging` is that process. It reads a Case from standard input and prints READY
before it opens the first file and the Score at the end, as JSON.
"""

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.protocols import Benchmark, JudgesFiles
from skillopt_airflow.core.types import Item, Score, Trajectory, Value

READY = "ready"
MEGABYTE = 1024 * 1024
MEMORY_BYTES = 1024 * MEGABYTE
"""Limit of the address space."""
CPU_SECONDS = 30
WALL_SECONDS = 60
WRITTEN_BYTES = MEGABYTE
"""Limit of any one file; a judge has nothing to write."""
PACKAGES = str(Path(__file__).parents[2])
PRODUCED, REFERENCES = "produced", "references"
LIBRARIES = {"OPENPYXL_LXML": "False", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
"""openpyxl then parses with defusedxml, which refuses entities; no address space for threads that nobody needs."""

_UNREADABLE = (
    f"what the target left could not be read within {CPU_SECONDS} s and {MEMORY_BYTES // MEGABYTE} MB: leave a plain "
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
        name: the benchmark's.
        benchmark: its adapter.
        item: the exercise.
        trajectory: the target's work on it.
        produced: contents of the files that it left.
        references: reads the item's reference files; called only where files are judged.

    Raises:
        SandboxError: as `judge`.
    """
    if isinstance(benchmark, JudgesFiles):
        return judge(Case(benchmark=name, item=item, trajectory=trajectory), produced, references())
    return benchmark.score(item, trajectory)


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
    from skillopt_airflow.sandbox.staging import held_folder

    with held_folder() as held:
        folder = held / "judge"
        folder.mkdir()
        for part, contents in ((PRODUCED, produced), (REFERENCES, references)):
            (folder / part).mkdir()
            for file, content in contents.items():
                (folder / part / file).write_bytes(content)
        # Nothing of the worker's environment, which holds credentials; -P keeps the folder off the import path.
        env = {
            "PATH": os.defpath,
            "PYTHONPATH": PACKAGES,
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "TMPDIR": str(folder),
        }
        env[benchmarks.LIST_VARIABLE] = str(benchmarks.folder(case.benchmark).absolute())
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "skillopt_airflow.training.judging"],
                input=case.model_dump_json().encode(),
                capture_output=True,
                cwd=folder,
                env={**env, **LIBRARIES},
                timeout=WALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            # It cannot wait for anything but a processor, of which it may use half that time.
            getting = "done" if READY.encode() in (error.stdout or b"") else "ready"
            _failed(case, f"the judge was not {getting} after {WALL_SECONDS} s")
        except OSError as error:
            raise SandboxError(f"the judge of {case.benchmark} could not start: {error}") from error
    return _score(case, done)


def _score(case: Case, done: "subprocess.CompletedProcess[bytes]") -> Score | None:
    ready, _, said = done.stdout.partition(b"\n")
    errors = done.stderr.decode(errors="replace")[-500:]
    if ready != READY.encode():
        _failed(case, f"the judge did not get ready (exit status {done.returncode}): {errors}")
    if done.returncode == 0:
        return Score.model_validate_json(said)
    if done.returncode == -signal.SIGKILL:
        _failed(case, "the judge was killed, as the kernel does where the worker's memory ends")
    log.warning("Item %s: the judge ended with exit status %d: %s", case.item.id, done.returncode, errors)
    return None


def _failed(case: Case, why: str) -> NoReturn:
    raise SandboxError(f"item {case.item.id} of {case.benchmark} could not be judged: {why}")


def _limit() -> None:
    """Lower this process's limits, for good."""
    for which, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, WRITTEN_BYTES),
        (resource.RLIMIT_CORE, 0),
        # Counts what the user runs already, so none is left; root is not bound by it.
        (resource.RLIMIT_NPROC, 0),
    ):
        _lower(which, most, most)
    # At the upper limit the kernel sends SIGKILL, as it does for want of memory, which is not the target's doing.
    _lower(resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 1)


def _lower(which: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


def main() -> None:
    """Judge the case of standard input by the folders below the working folder."""
    case = Case.model_validate_json(sys.stdin.buffer.read())
    # What the benchmark's code, or a library of it, prints is no part of the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    benchmark = benchmarks.load(case.benchmark)
    if not isinstance(benchmark, JudgesFiles):
        raise TypeError(f"{case.benchmark} judges no files")
    _limit()
    answer.write(f"{READY}\n")
    answer.flush()
    score = benchmark.score_files(case.item, case.trajectory, PRODUCED, REFERENCES)
    answer.write(score.model_dump_json())


if __name__ == "__main__":
    main()
