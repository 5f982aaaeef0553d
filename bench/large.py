"""Evaluations of 100,000 items: memory per stage, files, bytes per rollout, and time to read the scores."""

import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench import large_run, tables
from bench.large_run import Place
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.store.keys import trajectories_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import open_parquet, parts_of

SIZES = (200, 100_000)
"""Items on the selection split."""
WORKERS = 2
CHUNKS_EACH = 10
"""Chunks per process; a task has one."""
MEBIBYTE = 1024 * 1024
TEXTS = ("messages", "answer")
"""Columns with conversations."""
NOTE = (
    "A training of one step with as many items on the selection split, each with 3 KB of documents: seed and candidate "
    "are evaluated, so there are twice as many rollouts, all of them made up, and no containers or models. Each stage "
    "is a process of its own; the peak is its resident memory, its imports included and Airflow not. The chunks store "
    "40 rollouts at a time. Bytes beyond the text are those of the rollout's row and of its call without the columns "
    "of the conversation. The scores are those of the seed, from the local S3 server to the evaluation."
)


class StageResult(NamedTuple):
    """Result and cost of a stage."""

    result: Any
    seconds: float
    peak: float
    """MiB."""


def measure() -> None:
    """Write the table.

    Raises:
        PlatformError: the S3 server does not start, or a stage failed.
    """
    columns = []
    for items in SIZES:
        with large_run.own_place(items) as place:
            columns.append(_figures(place, items))
    rows = [(figure, *(column[figure] for column in columns)) for figure in columns[-1]]
    tables.write("large", "Runs of 200 and of 100,000 items", NOTE, ("figure", *(f"{n:,} items" for n in SIZES)), rows)


def _figures(place: Place, items: int) -> dict[str, str]:
    stages: dict[str, StageResult] = {}

    def run_stage(stage: Callable[..., Any], name: str) -> Any:
        stages[name] = in_process(stage, place)
        return stages[name].result

    seed: list[JsonObject] = run_stage(large_run.prepare, "prepare")
    first = _chunks(place, seed)
    run_stage(large_run.start, "conclude from the seed")
    reading = run_stage(large_run.read_scores, "read scores")
    candidate = run_stage(large_run.update, "plan the candidate")
    second = _chunks(place, candidate)
    run_stage(large_run.gate, "gate")
    files = _files(place.open().store)
    run_stage(large_run.report, "report")
    run_stage(large_run.score, "score of evaluate")
    run_stage(large_run.clean, "cleanup")
    run = place.open()
    state = len(run.store.get_bytes(run.keys.moment(run.timeline[1]).state))
    del stages["read scores"]
    return {
        "rollouts": f"{2 * items:,}",
        "chunks of a stage": str(len(seed)),
        "bytes of the XCom that names the chunks": f"{len(json.dumps(seed)):,}",
        **files,
        "seconds to read the scores of a skill": f"{reading:.2f}",
        "bytes of state.json": f"{state:,}",
        "chunk: most MiB": f"{max(*first, *second):.0f}",
        **{f"{name}: seconds, most MiB": f"{one.seconds:.1f}, {one.peak:.0f}" for name, one in stages.items()},
    }


def _files(store: ObjectStore) -> dict[str, str]:
    """Return the numbers of files, and the bytes per rollout."""
    rollouts, calls = (parts_of(store, prefix) for prefix in (trajectories_of("", "searchqa"), "usage/"))
    rows = stored = beyond = 0
    for key in (*rollouts, *calls):
        size, metadata = len(store.get_bytes(key)), open_parquet(store, key).metadata
        texts = 0
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = [group.column(number) for number in range(group.num_columns)]
            texts += sum(one.total_compressed_size for one in columns if one.path_in_schema.split(".")[0] in TEXTS)
        rows += metadata.num_rows if key in rollouts else 0
        stored, beyond = stored + size, beyond + size - texts
    return {
        "files of rollouts": str(len(rollouts)),
        "files of model calls": str(len(calls)),
        "bytes a rollout": f"{stored / rows:,.0f}",
        "bytes a rollout beyond its text": f"{beyond / rows:,.0f}",
    }


def _chunks(place: Place, refs: Sequence[JsonObject]) -> list[float]:
    """Run chunks in parallel; return the peak MiB of each process so far."""
    with multiprocessing.get_context("spawn").Pool(WORKERS, maxtasksperchild=CHUNKS_EACH) as pool:
        return pool.starmap(_chunk, [(place, ref) for ref in refs], chunksize=1)


def _chunk(place: Place, ref: JsonObject) -> float:
    large_run.chunk(place, ref)
    return _peak()


def in_process(stage: Callable[..., Any], place: Place) -> StageResult:
    """Run a stage in a separate process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_timed, (stage, place))


def _timed(stage: Callable[..., Any], place: Place) -> StageResult:
    clock = time.perf_counter()
    result = stage(place)
    return StageResult(result, time.perf_counter() - clock, _peak())


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE
