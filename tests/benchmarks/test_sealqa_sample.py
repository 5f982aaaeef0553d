"""The sample of SealQA: the seed skill is bad at it, each sound directive helps, and trainings find them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sealqa.adapter import BENCHMARK
from benchmarks.sealqa.make_sample import FOLDER, main
from benchmarks.sealqa.standin import ON_PAGES, STANDIN, answer, found_in
from local.served import served
from local.standin.server import StandInServer
from local.standin.stage_request import SeenTrajectory
from skillopt_airflow.core.types import DATA_SPLITS
from skillopt_airflow.training.history import history_of
from tests.benchmarks.drawn_sample import DrawnSample, check_made_again
from tests.training.served_training import ROLES, connect
from tests.training.served_training import training as served_training

SOUND = [directive.name for directive in ON_PAGES if not directive.tempting]
TEMPTING = [directive.name for directive in ON_PAGES if directive.tempting]
RULE = {directive.name: f"- {directive.rules[0]}\n" for directive in ON_PAGES}
SAMPLE = DrawnSample("sealqa", BENCHMARK, RULE)


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    check_made_again(main, FOLDER, tmp_path)


def test_the_sample_has_its_sizes_and_asks_nothing_twice() -> None:
    records = {split.value: SAMPLE.records(split.value) for split in DATA_SPLITS}
    assert {split: len(rows) for split, rows in records.items()} == {"train": 60, "val": 30, "test": 60}
    assert len({row["question"] for rows in records.values() for row in rows}) == 150
    for row in records["test"]:
        named = {one["text"].count(row["answer"]) for one in row["search_results"]}
        assert named == {0, 1}


def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    seed, trained = SAMPLE.accuracy(), SAMPLE.accuracy(*SOUND)
    assert 0.2 <= seed <= 0.4
    assert trained >= 0.95
    for name in SOUND:
        assert SAMPLE.accuracy(*(one for one in SOUND if one != name)) <= trained - 0.1
    for name in TEMPTING:
        assert SAMPLE.accuracy(*SOUND, name) <= trained - 0.2


def test_a_trajectory_is_tried_again_by_its_pages() -> None:
    for record in SAMPLE.records("train")[:16]:
        trajectory, score = SAMPLE.tried(record, SAMPLE.seed)
        case = STANDIN.case(trajectory)
        assert STANDIN.shown_by(trajectory)
        assert case is not None
        assert case.verdict(frozenset()).right == (score.hard == 1)
        assert case.verdict(frozenset(SOUND)).right
    assert STANDIN.case(SeenTrajectory(item_id="a", feedback="none")) is None


def test_what_is_not_understood_is_not_known() -> None:
    assert answer("Why?", found_in("[1]\ntitle: A\ntext"), frozenset(SOUND)) == "It is not known"
    assert answer("Question: Who is the mayor of Brindle Quay?", [], frozenset(SOUND)) == "It is not known"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in as a server behind the connections of both models."""
    with served(StandInServer("127.0.0.1", 0)) as server:
        for role in ROLES:
            connect(monkeypatch, role, server.base_url, "none", "stand-in-target")
        yield


@pytest.mark.nightly
@pytest.mark.slow
def test_a_training_with_tools_beats_its_seed(stand_in: None) -> None:
    trained = served_training(
        "sealqa",
        train__num_epochs=1,
        train__steps_per_epoch=4,
        train__batch_size=15,
        model__harness="tools",
        model__max_turns=12,
        evaluation__val_limit=24,
        evaluation__eval_test=False,
        **{f"model__{role}": "openai-chat:stand-in-target" for role in ROLES},
    )
    trained()
    history = history_of(trained.run)
    assert history.best_val_score > history.seed_val_score
    assert "accept_new_best" in trained.actions()
