"""Pages of trajectories over 100,000 items under two skills: the median seconds of an answer, and its memory."""

import multiprocessing
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import urlencode

import yaml

from bench import page_times, tables
from bench.large import WORKERS
from bench.large_run import CONTEXT_CHARS, REPLY_CHARS, VOCABULARY, Place, words
from bench.page_times import Answered, Asked
from bench.stored_run import AT_ONCE, BATCH, SEED, StoredRun, store_rollouts, store_run
from local.home import PROJECT
from local.objectstore import server_in
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.core.types import Item, Message, Rollout, Score, Split, Status, Trajectory
from skillopt_airflow.ui.trajectories import RUN_ROUTE, SKILL_ROUTE

ITEMS = 100_000
BENCHMARK, RUN = "searchqa", "large"
TIMEOUTS = 0.01
"""Share of the rollouts without a score."""
CANDIDATE = "steps/step_0001/candidate_skill.md"
CURRENT = "skills/skill_v0000.md"
RARE = "zyzzyva"
"""A word that the target says once in a thousand rollouts."""
HEADER = (
    "page",
    "seconds, median of 20",
    "slowest",
    "KB of the page",
    "MB of the server",
    "MB more than Airflow's own",
)
NOTE = (
    f"Airflow's API server with the plugin, and {ITEMS:,} items with {CONTEXT_CHARS:,} characters of documents each, "
    f"which ran under two skills: {2 * ITEMS:,} rollouts, stored and merged as stages do it, on a local S3 server that "
    "computes on the same cores. Every answer reads what it shows anew. The memory is the most that the processes of "
    "the server had by then; Airflow's own is what they had before they read a rollout."
)


def measure() -> None:
    """Write the table.

    Raises:
        PlatformError: the S3 server or Airflow's database does not start, or a page is not answered.
    """
    with tempfile.TemporaryDirectory(prefix="skillopt-trajectories-") as folder, server_in(Path(folder)) as address:
        own, *pages = page_times.answers(address, _asked(fill(address)))
    tables.write("trajectories", "Pages of trajectories", NOTE, HEADER, [_row(one, own.megabytes) for one in pages])


def _row(one: Answered, own: float) -> Sequence[str]:
    seconds = (f"{value:.2f}" for value in (median(one.seconds), max(one.seconds)))
    return one.name, *seconds, *(f"{value:,.0f}" for value in (one.kilobytes, one.megabytes, one.megabytes - own))


def fill(address: str) -> StoredRun:
    """Store the run and its rollouts; return it."""
    place = Place(address, "", RUN)
    for bucket in (StorageGroup().bucket, StorageGroup().artifact_bucket):
        place.client.create_bucket(Bucket=bucket)
    made = {Split.VAL: ITEMS, Split.TRAIN: BATCH, Split.TEST: BATCH}
    items = {split: [_item(split, number) for number in range(count)] for split, count in made.items()}
    stored = store_run(place.open(), _config(), items)
    del items
    work = [(place, key, start) for key in (CURRENT, CANDIDATE) for start in range(0, ITEMS, AT_ONCE)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.starmap(_roll_out, work, chunksize=4)
    stored.run.merge_parts(Split.VAL, [stored.seed, stored.candidate])
    return stored


def _asked(stored: StoredRun) -> list[Asked]:
    run, skill = RUN_ROUTE.format(benchmark=BENCHMARK, run=RUN), SKILL_ROUTE.format(benchmark=BENCHMARK)
    stage = {"moment": "steps/step_0001", "stage": "evaluate", "skill": CANDIDATE}
    other, item = {"other": CURRENT}, {"item": _item(Split.VAL, ITEMS // 2).id}

    def of_run(**more: str) -> str:
        return f"{run}?{urlencode(stage | more)}"

    return [
        Asked("stylesheet", "/static/pages.css"),
        Asked("list of a stage", of_run()),
        Asked("list, failures with a text in id or error", of_run(show="failure", text="abc")),
        Asked("list, last page by seconds", of_run(sort="seconds", order="down", page="2000")),
        Asked("list beside another skill, flipped", of_run(**other, show="flipped")),
        Asked("list, search in what was said", of_run(text=RARE, within="said")),
        Asked("list of a skill", f"{skill}?{urlencode({'skill': stored.candidate.sha256[:12]})}"),
        Asked("an item", of_run(**item)),
        Asked("an item beside another skill", of_run(**other, **item)),
    ]


def _roll_out(place: Place, key: str, start: int) -> None:
    run = place.open()
    items = [_item(Split.VAL, number) for number in range(start, min(start + AT_ONCE, ITEMS))]
    store_rollouts(run, Split.VAL, run.document(f"{run.keys.folder}{key}"), items, _play)


def _item(split: Split, number: int) -> Item:
    random = Random(f"{split} {number}")  # noqa: S311  made-up texts, no secret
    public = {
        "question": words(random, 80),
        "context": " ".join(f"[DOC] {words(random, CONTEXT_CHARS // 10)}" for _ in range(10)),
    }
    name = f"{split}-{random.getrandbits(128):032x}"
    return Item(id=name, public=dict(public), reference={"answers": [random.choice(VOCABULARY)]})


def _play(item: Item, skill: str) -> Rollout:
    random = Random(f"{item.id} {skill}")  # noqa: S311
    if random.random() < TIMEOUTS:
        failed = Trajectory(item_id=item.id, status=Status.TIMEOUT, error="no answer in 60 s", seconds=60.0)
        return Rollout(trajectory=failed, score=None)
    hard = float(random.random() < (0.5 if skill == SEED else 0.6))
    word = random.choice(VOCABULARY)
    said = f"{words(random, REPLY_CHARS)} {RARE if random.random() < 0.001 else ''}\n<answer>{word}</answer>"
    messages = (
        Message(role="system", content=skill),
        Message(role="user", content=f"{item.public['context']}\n\n{item.public['question']}"),
        Message(role="assistant", content=said),
    )
    trajectory = Trajectory(
        item_id=item.id,
        status=Status.OK,
        messages=messages,
        answer=word,
        calls=1,
        prompt_tokens=900,
        completion_tokens=random.randint(10, 100),
        started=1763696507.25 + random.random(),
        seconds=random.random(),
    )
    feedback = "" if hard else f'expected "{item.reference["answers"]}"; answered "{word}"'
    return Rollout(trajectory=trajectory, score=Score(hard=hard, soft=hard, feedback=feedback))


def _config() -> TrainConfig:
    layer = yaml.safe_load((PROJECT / "benchmarks" / BENCHMARK / "benchmark.yaml").read_text(encoding="utf-8"))
    own = {
        "train": {"num_epochs": 1, "steps_per_epoch": 1},
        "model": {"target": "openai-chat:bench", "optimizer": "openai-chat:bench"},
        "sandbox": {"items_per_container": AT_ONCE},
    }
    return TrainConfig.from_layers(layer, own)
