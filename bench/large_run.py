"""The stages of a large training in this process, with synthetic rollouts instead of models and containers."""

import json
import random
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from bench.s3_server import server_in
from local import objectstore
from local.home import PROJECT
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role
from skillopt_airflow.core.run.state import ReflectedItems
from skillopt_airflow.core.values.types import (
    Edit,
    Item,
    JsonObject,
    Message,
    ModelCall,
    Patch,
    Split,
    Status,
    Trajectory,
)
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.training.run.connections import Connections

CONTEXT_CHARS, REPLY_CHARS = 3000, 200
STORED_ROLLOUTS = 40
"""Rollouts that a chunk stores per write, usually every two seconds."""
RULE = "Answer with one word."
"""Rule that the candidate adds to the seed."""


@dataclass(frozen=True)
class Place:
    """Location of the run, for other processes."""

    endpoint: str
    data: str
    run: str

    def open(self) -> TrainingRun:
        ref = RunRef(benchmark="searchqa", run=self.run, storage=StorageGroup())
        return TrainingRun(ref, cast("Connections", LocalConnections(self)))

    @property
    def client(self) -> "S3Client":
        return objectstore.client(self.endpoint)


class LocalConnections:
    """The S3 server, without models."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def s3_client(self, storage: StorageGroup) -> "S3Client":
        return self._place.client

    def object_store(self, storage: StorageGroup, bucket: str) -> ObjectStore:
        return ObjectStore(self._place.client, bucket)

    def prices(self, config: TrainConfig) -> Prices:
        return {"target": None, "optimizer": None}

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        return "sha256:none"


@contextmanager
def own_place(items: int) -> Iterator[Place]:
    """Yield a place with a dataset of `items` validation items and a separate S3 server."""
    storage = StorageGroup()
    with tempfile.TemporaryDirectory(prefix="skillopt-large-") as name, server_in(Path(name)) as endpoint:
        place = Place(endpoint, str(Path(name) / "data"), "large")
        write_data(Path(place.data), items)
        for bucket in (storage.bucket, storage.artifact_bucket):
            place.client.create_bucket(Bucket=bucket)
        yield place


def prepare(place: Place) -> list[JsonObject]:
    """Check and store the items; return the references of the seed's chunks."""
    from skillopt_airflow.training.prepare.preparation import prepare_training

    return prepare_training(place.open(), _config(place))


def chunk(place: Place, ref: JsonObject) -> None:
    """Run a chunk like its task, without containers."""
    from skillopt_airflow.training.rollouts.workload import ChunkWorkload

    work = ChunkWorkload(place.open(), ref, "bench")
    waiting = list(work.items)
    while waiting and not work.is_decided():
        now, waiting = waiting[:STORED_ROLLOUTS], waiting[STORED_ROLLOUTS:]
        outcomes = [Outcome(_played(work.run, work.skill, item)) for item in now]
        work.record(outcomes, [_call(work.stage) for _ in now])
    work.close()
    tally = work.tally()
    if tally.scored != tally.planned:
        raise PlatformError(f"the chunk has {tally}")


def start(place: Place) -> None:
    from skillopt_airflow.training.step.seed_and_final import start as conclude

    conclude(place.open())


def read_scores(place: Place) -> float:
    """Return the seconds to read the seed's scores, as each stage that needs them does."""
    import pyarrow.parquet  # noqa: F401 - excludes the import from the time

    from skillopt_airflow.training.rollouts.evaluation import measured

    run = place.open()
    skill, wanted = run.skill(0), run.config.evaluation.val_limit
    clock = time.perf_counter()
    evaluation = measured(run, Split.VAL, skill)
    seconds = time.perf_counter() - clock
    if wanted is not None or evaluation.coverage < 1:
        raise PlatformError("scores are missing")
    return seconds


def update(place: Place) -> list[JsonObject]:
    """Store a candidate; return the references of its chunks."""
    from skillopt_airflow.training.step.candidate import propose

    run = place.open()
    moment = run.timeline[1]
    patch = Patch(edits=(Edit(op="append", content=RULE),))
    run.store.put_model(run.keys.moment(moment).merged_patch, patch)
    run.store.put_model(run.keys.moment(moment).ranked_edits, patch)
    run.store.put_model(run.keys.moment(moment).reflected_items, ReflectedItems(item_ids=(), failed=0))
    return propose(run, moment, patch)


def gate(place: Place) -> None:
    from skillopt_airflow.training.step.candidate import gate as decide

    run = place.open()
    decide(run, run.timeline[1])


def report(place: Place) -> None:
    """End the run, and write its report."""
    from skillopt_airflow.training.report.reporting import write_report
    from skillopt_airflow.training.step.seed_and_final import finish

    run = place.open()
    finish(run)
    write_report(run)


def score(place: Place) -> None:
    """Compare the seed with the candidate from stored rollouts, like the last task of the evaluation DAG."""
    from skillopt_airflow.core.run.skill_matrix import ComparedSkill
    from skillopt_airflow.core.values.skill import tokens_of
    from skillopt_airflow.training.report.matrix import conclude_matrix

    run = place.open()
    named = ((source, run.skill(version)) for version, source in enumerate(("seed", "candidate")))
    skills = [ComparedSkill(source=source, sha256=skill.sha256, tokens=tokens_of(skill)) for source, skill in named]
    conclude_matrix([run], skills, (Split.VAL,), None)


def clean(place: Place) -> None:
    """Compact the tables, like the cleanup DAG."""
    from skillopt_airflow.store.tables.retention import compact, partitions

    run = place.open()
    for partition in partitions(run.store, "", "searchqa"):
        compact(run.store, partition, None, datetime.now(UTC) + timedelta(days=1))


def _config(place: Place) -> TrainConfig:
    layer = yaml.safe_load((PROJECT / "benchmarks" / "searchqa" / "benchmark.yaml").read_text(encoding="utf-8"))
    own = {
        "data": {"uri": place.data, "split_mode": "split_dir"},
        "train": {"num_epochs": 1, "steps_per_epoch": 1},
        "optimizer": {"use_slow_update": False},
        "evaluation": {"eval_test": False, "early_reject": False},
        "model": {"target": "openai-chat:bench", "optimizer": "openai-chat:bench"},
        "sandbox": {"items_per_container": 400},
    }
    return read_config(layer, own)


def _played(run: TrainingRun, skill: str, item: Item) -> Trajectory:
    system, user = run.benchmark.messages(item.public, skill)
    dice = _dice(item.id + skill)
    right = dice.random() < (0.6 if RULE in skill else 0.5)
    answers = item.reference["answers"]
    word = str(answers[0]) if right and isinstance(answers, list) else "nothing"
    reply = f"{words(dice, REPLY_CHARS)}\n<answer>{word}</answer>"
    return Trajectory(
        item_id=item.id,
        status=Status.OK,
        messages=(system, user, Message(role="assistant", content=reply)),
        answer=word,
        calls=1,
        prompt_tokens=900,
        completion_tokens=60,
        started=time.time(),
        seconds=dice.random(),
    )


def _call(stage: str) -> ModelCall:
    return ModelCall(
        role="target",
        stage=stage,
        model="bench",
        http_status=200,
        attempts=1,
        prompt_tokens=900,
        completion_tokens=60,
        started=time.time(),
        seconds=0.5,
    )


def _dice(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - texts, not secrets


def _vocabulary() -> list[str]:
    dice = _dice("words")
    return ["".join(dice.choices("etaoinshrdlucmfwyp", k=dice.randint(2, 10))) for _ in range(20_000)]


VOCABULARY = _vocabulary()


def words(dice: random.Random, chars: int) -> str:
    """Return about `chars` characters of words."""
    return " ".join(dice.choices(VOCABULARY, k=chars // 7))


def record(name: str) -> JsonObject:
    """Return a record like SearchQA's, reproducible from its name."""
    dice = _dice(name)
    return {
        "id": f"{name.partition(' ')[0]}-{dice.getrandbits(128):032x}",
        "question": words(dice, 80),
        "context": " ".join(f"[DOC] {words(dice, CONTEXT_CHARS // 10)}" for _ in range(10)),
        "answers": [dice.choice(VOCABULARY)],
    }


def write_data(folder: Path, items: int) -> None:
    """Write a dataset like SearchQA's with `items` validation items."""
    for split, count in (("train", 40), ("val", items), ("test", 10)):
        (folder / split).mkdir(parents=True)
        with (folder / split / "items.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record(f"{split} {number}")) + "\n" for number in range(count))
