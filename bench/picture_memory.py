"""A thousand pictures of a megabyte each: memory of the stages that read them, and what is stored of them."""

import os
import random
import resource
import tempfile
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet
import yaml
from PIL import Image

from bench import tables
from bench.large import MEBIBYTE, alone
from bench.large_run import LocalConnections, Place
from local.objectstore import server_in
from local.rollout_process import ProcessRuntime
from local.served import served
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.resource_groups import ModelGroup, StorageGroup
from skillopt_airflow.core.types import JsonObject, canonical_json
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.training.connections import Connections
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.training.workload import ChunkWorkload

SIZES = (100, 1000)
"""Pictures of the selection split; the other two have ten each."""
SIDE = 590
"""Pixels of noise, which no compression makes smaller: a megabyte."""
ROWS = 100
"""Rows of a part of the table, as the Hugging Face hub has them where there are pictures."""
NAME = "scans"
TASK = {
    "task": {
        "id": "id",
        "prompt": "{{ image }} What is the total?",
        "reference": "total",
        "score": {"by": "number"},
        "pictures": ["image"],
    },
    "model": {"target": "openai-chat:m", "optimizer": "openai-chat:m"},
}
ANSWER = canonical_json(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "7"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 1, "total_tokens": 901},
    }
).encode()
NOTE = (
    "A declared task whose table, three Parquet files in a bucket, holds a picture of noise in each row, in parts of "
    f"{ROWS} rows. Each stage is a process of its own; the peak is its resident memory, its imports included and "
    "Airflow not. The chunk's task stages its pictures and is the gateway; the program is that of the sandbox, with "
    "the default settings' calls in flight, and a server that answers at once."
)


@dataclass(frozen=True)
class PicturePlace(Place):
    """The place of the run's data, store and model."""

    model: str = ""

    def open(self) -> TrainingRun:
        """Open the run."""
        ref = RunRef(benchmark=NAME, run=self.run, storage=StorageGroup())
        return TrainingRun(ref, cast(Connections, _WithModel(self, self.model)))


class _WithModel(LocalConnections):
    def __init__(self, place: Place, address: str) -> None:
        super().__init__(place)
        self._address = address

    def upstream(self, model: ModelGroup) -> Upstream:
        return Upstream(dialect="openai-chat", base_url=self._address, model="m", api_key="")


def measure() -> None:
    """Write the table.

    Raises:
        PlatformError: the S3 server does not start, or a stage failed.
    """
    columns = [_figures(size) for size in SIZES]
    rows = [(figure, *(column[figure] for column in columns)) for figure in columns[0]]
    tables.write("pictures", "Pictures of a megabyte", NOTE, ("figure", *(f"{n:,} items" for n in SIZES)), rows)


def _figures(items: int) -> dict[str, str]:
    with (
        tempfile.TemporaryDirectory(prefix="skillopt-pictures-") as name,
        server_in(Path(name)) as endpoint,
        served(ThreadingHTTPServer(("127.0.0.1", 0), _Model)) as server,
    ):
        folder = Path(name) / NAME
        folder.mkdir()
        place = PicturePlace(endpoint, "s3://data/set", "pictures", f"http://127.0.0.1:{server.server_port}/v1")
        data = {"uri": place.data, "split_mode": "split_dir"}
        (folder / "benchmark.yaml").write_text(yaml.safe_dump(TASK | {"data": data}), encoding="utf-8")
        (folder / "initial.md").write_text("# Read scans\n", encoding="utf-8")
        os.environ[LIST_VARIABLE] = str(folder)
        storage = StorageGroup()
        for bucket in ("data", storage.bucket, storage.artifact_bucket):
            place.client.create_bucket(Bucket=bucket)
        table = sum(_write(place, split, count) for split, count in (("train", 10), ("val", items), ("test", 10)))
        prepared = alone(prepare, place)
        chunk = alone(_FirstChunk(prepared.result), place)
        store = place.open().store
        kept = [len(store.get_bytes(key)) for key in store.list_keys("files/")]
        others = [len(store.get_bytes(key)) for key in store.list_keys("") if not key.startswith("files/")]
    rollouts, program = chunk.result
    return {
        "MiB of the tables": f"{table / MEBIBYTE:,.0f}",
        "prepare: seconds, most MiB": f"{prepared.seconds:.0f}, {prepared.peak:.0f}",
        "items of a chunk": f"{rollouts:,}",
        "chunk: seconds, most MiB of its task": f"{chunk.seconds:.0f}, {chunk.peak:.0f}",
        "chunk: most MiB of the program in its sandbox": f"{program:.0f}",
        "stored pictures, MiB": f"{len(kept):,}, {sum(kept) / MEBIBYTE:,.0f}",
        "all other objects, MiB": f"{sum(others) / MEBIBYTE:.1f}",
    }


def _write(place: Place, split: str, count: int) -> int:
    """Put a split's table into the bucket; return its bytes."""
    kind = pa.schema(
        {"id": pa.string(), "total": pa.string(), "image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    )
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        with pa.parquet.ParquetWriter(file.name, kind) as writer:
            for start in range(0, count, ROWS):
                rows = [_row(f"{split}-{number}") for number in range(start, min(count, start + ROWS))]
                writer.write_table(pa.Table.from_pylist(rows, kind))
        place.client.upload_file(file.name, "data", f"set/{split}/items.parquet")
        return Path(file.name).stat().st_size


def _row(name: str) -> JsonObject:
    noise = random.Random(name).randbytes(3 * SIDE * SIDE)  # noqa: S311 - a picture, no secret
    made = BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), noise).save(made, "PNG", compress_level=1)
    image: Any = {"bytes": made.getvalue(), "path": f"{name}.png"}
    return {"id": name, "total": "7", "image": image}


def prepare(place: Place) -> list[JsonObject]:
    """Check and store the items; return the references of the seed's chunks."""
    from skillopt_airflow.training.benchmark_settings import benchmark_config
    from skillopt_airflow.training.preparation import prepare_training

    layers = nest({"train.preflight": False, "data.uri": place.data})
    return prepare_training(place.open(), TrainConfig.from_layers(benchmark_config(NAME).model_dump(), layers), 1024)


@dataclass(frozen=True)
class _FirstChunk:
    refs: Sequence[JsonObject]

    def __call__(self, place: Place) -> tuple[int, float]:
        """Carry the chunk out; return its items, and the most MiB of the program."""
        from skillopt_airflow.sandbox.container_loop import run_workload

        work = ChunkWorkload(place.open(), self.refs[0], "bench")
        run_workload(work, lambda folder: nullcontext(ProcessRuntime(work, folder)), threading.Event())
        tally = work.tally()
        if tally.scored != tally.planned:
            raise PlatformError(f"the chunk has {tally}")
        return tally.planned, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / MEBIBYTE


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, MEBIBYTE)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *words: object) -> None:
        """Say nothing."""
