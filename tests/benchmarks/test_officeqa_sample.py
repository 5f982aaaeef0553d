"""The sample of OfficeQA: made again as it is, its answers follow from its bulletins, and training finds the rules."""

import asyncio
import json
from functools import cache, lru_cache
from pathlib import Path
from subprocess import run

import pytest

from benchmarks.officeqa import make_sample
from benchmarks.officeqa.adapter import BENCHMARK
from benchmarks.officeqa.standin import ON_BULLETINS, STANDIN, notes, solve, use_tools
from local.standin.reader import respond
from local.standin.stage_request import SeenTrajectory
from skillopt_airflow import benchmarks
from skillopt_airflow.core.types import DATA_SPLITS, Item, Message, Score, Status, Trajectory
from skillopt_airflow.rollout.corpus_folder import CorpusFolder
from skillopt_airflow.rollout.workspace import ItemFolders

SAMPLE = benchmarks.folder("officeqa") / "sample"
FOLDERS = ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0, corpus=CorpusFolder(SAMPLE / "corpus"))
SEED = benchmarks.seed_skill("officeqa").read_text(encoding="utf-8")
RULE = {directive.name: f"- {directive.rules[0]}\n" for directive in ON_BULLETINS}
SOUND = [directive.name for directive in ON_BULLETINS if not directive.tempting]
TEMPTING = [directive.name for directive in ON_BULLETINS if directive.tempting]


@lru_cache
def items(split: str) -> list[Item]:
    return [BENCHMARK.item(record) for record in json.loads((SAMPLE / split / "items.json").read_text("utf-8"))]


@cache
def prompt(split: str, place: int) -> str:
    item = items(split)[place]
    _, user = BENCHMARK.messages(item.public, "")
    return f"{user.content}\n\n{asyncio.run(BENCHMARK.shown_files(item.public, FOLDERS))}"


def tried(split: str, place: int, skill: str) -> tuple[SeenTrajectory, Score]:
    """What the optimizer sees of the stand-in's work on an item, and its score."""
    item, asked = items(split)[place], prompt(split, place)
    reply = respond(skill, asked)
    trajectory = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(reply))
    score = BENCHMARK.score(item, trajectory)
    messages = (Message(role="user", content=asked), Message(role="assistant", content=reply))
    return SeenTrajectory(item_id=item.id, feedback=score.feedback, messages=messages), score


def accuracy(*names: str) -> float:
    skill, count = SEED + "".join(RULE[name] for name in names), len(items("test"))
    return sum(tried("test", place, skill)[1].hard for place in range(count)) / count


def test_the_script_writes_what_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_sample, "FOLDER", tmp_path)
    make_sample.main()
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert made == sorted(path.relative_to(SAMPLE) for path in SAMPLE.rglob("*.*"))
    assert all((tmp_path / path).read_bytes() == (SAMPLE / path).read_bytes() for path in made)


def test_the_sample_has_its_sizes() -> None:
    assert {split.value: len(items(split)) for split in DATA_SPLITS} == {"train": 60, "val": 30, "test": 60}
    assert len({item.id for split in DATA_SPLITS for item in items(split)}) == 150
    assert len({str(item.public["question"]) for split in DATA_SPLITS for item in items(split)}) == 150
    assert len(list((SAMPLE / "corpus").iterdir())) == 200
    assert all(len(item.public["source_files"]) >= 2 for split in DATA_SPLITS for item in items(split))


def test_every_answer_follows_from_the_pages_that_its_sources_name() -> None:
    active = frozenset(SOUND)
    for split in DATA_SPLITS:
        for place, item in enumerate(items(split)):
            question = str(item.public["question"])
            found = solve(question, notes(question, prompt(split, place)), active)
            assert found == item.reference["answer"], question


def test_an_agent_reads_in_its_shell_what_the_tools_would_have_shown() -> None:
    item = items("test")[0]
    task, results = BENCHMARK.task(item.public), list[str]()
    assert STANDIN.speaks_of(task)
    while calls := use_tools(frozenset(SOUND), task, results).calls:
        (call,) = calls
        command = ["bash", "-c", STANDIN.command(call, task)]
        done = run(command, env={"CORPUS": str(SAMPLE / "corpus")}, capture_output=True, text=True, check=True)
        assert done.stdout, command
        results.append(done.stdout)
    assert len(results) > 3
    assert BENCHMARK.answer(use_tools(frozenset(SOUND), task, results).text) == item.reference["answer"]


def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    seed, trained = accuracy(), accuracy(*SOUND)
    assert 0.05 <= seed <= 0.3
    assert trained == 1
    for name in SOUND:
        assert accuracy(*(one for one in SOUND if one != name)) <= trained - 0.15
    for name in TEMPTING:
        assert accuracy(*SOUND, name) <= trained - 0.3


def test_a_trajectory_is_tried_again_by_its_notes() -> None:
    for place in range(24):
        trajectory, score = tried("train", place, SEED)
        case = STANDIN.case(trajectory)
        assert STANDIN.shown_by(trajectory)
        assert case is not None
        assert case.verdict(frozenset()).right == bool(score.hard)
        assert case.verdict(frozenset(SOUND)).right
    without_notes = SeenTrajectory(item_id="i", feedback='expected "1"; answered "2"')
    assert STANDIN.case(without_notes) is None
