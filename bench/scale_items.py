"""A training of one step on many items, as `bench large` carries it out: its requests, bytes, objects and memory."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from bench import large_run
from bench.counted_store import CountedPlace, Used
from bench.large import alone
from bench.large_run import Place
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.core.types import JsonObject

MEASURED = (1_600, 16_000)
"""Items, of which both are whole chunks of those of `large_run`."""
STAGES: Mapping[str, Callable[..., Any]] = {
    "prepare": large_run.prepare,
    "rollouts of the seed": large_run.chunk,
    "conclude from the seed": large_run.start,
    "plan the candidate": large_run.update,
    "rollouts of the candidate": large_run.chunk,
    "gate": large_run.gate,
    "report": large_run.report,
    "cleanup": large_run.clean,
}
"""In their order; a chunk is carried out for each reference that the stage before it returned."""


class Stage(NamedTuple):
    """The costs of a stage."""

    used: Used
    peak: float
    """MiB of its process; of a chunk's, which are carried out in this one, 0."""


class Training(NamedTuple):
    """A training's stages by name, and what it left."""

    stages: Mapping[str, Stage]
    objects: int
    stored: int
    """Bytes."""


def carry_out(items: int) -> Training:
    """Train for a step on so many items, on an S3 server of its own.

    Raises:
        PlatformError: the server does not start, or a stage failed.
    """
    with large_run.own_place(items) as own:
        place = CountedPlace.of(own)
        stages: dict[str, Stage] = {}
        planned: list[JsonObject] = []
        for stage, work in STAGES.items():
            if work is large_run.chunk:
                with place.metered() as used:
                    for ref in planned:
                        large_run.chunk(place, ref)
                stages[stage] = Stage(used, 0.0)
            else:
                found = alone(partial(_counted, work), own)
                planned, used = found.result
                stages[stage] = Stage(used, found.peak)
        sizes = _sizes(own)
        return Training(stages, len(sizes), sum(sizes.values()))


def _counted(work: Callable[..., Any], place: Place) -> tuple[Any, Used]:
    counted = CountedPlace.of(place)
    with counted.metered() as used:
        result = work(counted)
    return result, used


def _sizes(place: Place) -> Counter[str]:
    """Return the bytes of each object that is left, by key."""
    pages = place.client.get_paginator("list_objects_v2").paginate(Bucket=StorageGroup().bucket)
    return Counter({found["Key"]: found["Size"] for page in pages for found in page.get("Contents", ())})
