"""The sample of DocVQA: what is drawn can be read, the seed skill is bad at it, and training makes it better."""

import json
from collections.abc import Sequence

import pytest
from PIL import Image

from benchmarks.docvqa.standin import found, page_text
from local.standin.directives import recognise
from local.standin.reader import respond
from skillopt_airflow import benchmarks
from skillopt_airflow.core.pictures import marked
from skillopt_airflow.core.types import DATA_SPLITS, Item, Score, Split, Status, Trajectory
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.history import history_of
from tests.training.in_process import Training

FOLDER = benchmarks.folder("docvqa") / "sample"
BENCHMARK = benchmarks.load("docvqa", benchmark_config("docvqa").task)
SEED_SKILL = benchmarks.seed_skill("docvqa").read_text(encoding="utf-8")
TRAINED_SKILL = """# Answering questions about a scanned page

- Find the label that the question names, and answer with what is printed next to it.
- Give a number with its unit or currency.
- Keep names, dates and amounts exactly as they are printed.
- In a table go to the row and then to the column that the question names.
"""
MOST_BYTES = 3_000_000


def sample(split: Split) -> list[Item]:
    records = json.loads((FOLDER / split / "items.json").read_text(encoding="utf-8"))
    return [BENCHMARK.item(record) for record in records]


def score(item: Item, answer: str) -> Score:
    return BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))


def accuracy(items: Sequence[Item], skill: str) -> float:
    right = 0.0
    for item in items:
        system, user = BENCHMARK.messages(item.public, skill)
        pictures = {file.name: (FOLDER / file.path).read_bytes() for file in item.files}
        response = respond(system.content, user.content, [pictures[name] for name in marked(user.content)])
        right += score(item, BENCHMARK.answer(response)).hard
    return right / len(items)


def test_the_sample_has_its_sizes_and_shares_no_page_between_splits() -> None:
    splits = {split: sample(split) for split in DATA_SPLITS}
    assert {split.value: len(items) for split, items in splits.items()} == {"train": 60, "val": 30, "test": 60}
    groups = [item.group for items in splits.values() for item in items]
    assert len(set(groups)) == len({(split, item.group) for split, items in splits.items() for item in items}) == 75
    assert len({item.id for items in splits.values() for item in items}) == 150


def test_the_pages_are_gray_and_small() -> None:
    pages = sorted((FOLDER / "pages").iterdir())
    assert {file.path for split in DATA_SPLITS for item in sample(split) for file in item.files} == {
        f"pages/{page.name}" for page in pages
    }
    assert sum(page.stat().st_size for page in pages) <= MOST_BYTES
    for page in pages:
        with Image.open(page) as image:
            assert (image.mode, image.width) == ("L", 660)


@pytest.mark.parametrize("split", list(DATA_SPLITS))
def test_every_gold_answer_scores_1(split: Split) -> None:
    for item in sample(split):
        answers = item.reference["reference"]
        assert isinstance(answers, list)
        assert [score(item, str(answer)).hard for answer in answers] == [1.0] * len(answers)


PAGE = """Velden Dairy
The net weight below 74 is free.
Net weight: | 1,053 kg
Due date: | 3 May 1948
Sender: | Dr. Ada Renz
Article | Sold | Stock
Rye flour | 12 kg | 90 kg"""
WEIGHT, DATE, SENDER = "What is the net weight?", "What is the due date?", "Who is the sender?"
FLOUR = 'What is the figure under "Sold" for rye flour?'


@pytest.mark.parametrize(
    ("question", "names", "answer"),
    [
        (WEIGHT, [], "free"),
        (WEIGHT, ["label_first"], "1053"),
        (WEIGHT, ["label_first", "unit_or_currency"], "1053 kg"),
        (WEIGHT, ["label_first", "unit_or_currency", "as_printed"], "1,053 kg"),
        (DATE, [], "1948-05-03"),
        (DATE, ["as_printed"], "3 May 1948"),
        (SENDER, [], "Ada Renz"),
        (SENDER, ["as_printed"], "Dr. Ada Renz"),
        (FLOUR, ["unit_or_currency"], "90 kg"),
        (FLOUR, ["unit_or_currency", "row_and_column"], "12 kg"),
        (FLOUR, ["row_and_column", "round_figures"], "10"),
        (FLOUR, ["largest_figure"], "1948"),
        ("What is the colour?", [], ""),
        ("Why?", [], ""),
    ],
)
def test_a_directive_changes_what_it_should(question: str, names: list[str], answer: str) -> None:
    assert found(question, PAGE, frozenset(names)) == answer


def test_the_seed_asks_for_no_directive() -> None:
    assert recognise(SEED_SKILL) == frozenset()


def test_a_page_is_read_with_its_columns() -> None:
    text = page_text((FOLDER / "pages" / "04.png").read_bytes())
    assert any(line.count(" | ") == 3 for line in text.splitlines())


@pytest.mark.slow
def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    # Those that the training below reads, too.
    items = sample(Split.VAL)
    seed, trained = accuracy(items, SEED_SKILL), accuracy(items, TRAINED_SKILL)
    assert 0.2 <= seed <= 0.4
    assert trained >= seed + 0.4


SHORT = {"optimizer__use_slow_update": False, "evaluation__eval_test": False}
"""Tesseract reads a picture in a third of a second."""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_whole_training_makes_it_better() -> None:
    training = Training.of(
        "docvqa", train__steps_per_epoch=3, train__batch_size=12, evaluation__val_limit=None, **SHORT
    )
    training()
    history = history_of(training.run)
    assert history.best_val_score >= history.seed_val_score + 0.2
