"""The sample of MMRB: what is drawn can be read, the seed skill is bad at it, and training makes it better."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.mmrb.adapter import BENCHMARK
from benchmarks.mmrb.standin import STANDIN, Comparison, chart_text
from local.standin.directives import recognise
from local.standin.reader import respond
from local.standin.stage_request import SeenTrajectory
from skillopt_airflow import benchmarks
from skillopt_airflow.core.pictures import marked
from skillopt_airflow.core.types import DATA_SPLITS, Item, Message, Score, Split, Status, Trajectory
from skillopt_airflow.training.history import history_of
from tests.training.in_process import Training

FOLDER: Path = benchmarks.folder("mmrb") / "sample"
SEED_SKILL = benchmarks.seed_skill("mmrb").read_text(encoding="utf-8")
TRAINED_SKILL = """# Comparing several pictures

- Go by the number printed above bars and points, however tall they look.
- Look at all the charts, and note what each of them shows.
- Bring all values to one unit first: a title may count in thousands.
"""
MOST_BYTES = 3_000_000


def sample(split: Split) -> list[Item]:
    records = json.loads((FOLDER / split / "items.json").read_text(encoding="utf-8"))
    return [BENCHMARK.item(record) for record in records]


def score(item: Item, answer: str) -> Score:
    return BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))


def responded(item: Item, skill: str) -> str:
    system, user = BENCHMARK.messages(item.public, skill)
    pictures = {file.name: (FOLDER / file.path).read_bytes() for file in item.files}
    return respond(system.content, user.content, [pictures[name] for name in marked(user.content)])


def accuracy(items: Sequence[Item], skill: str) -> float:
    return sum(score(item, BENCHMARK.answer(responded(item, skill))).hard for item in items) / len(items)


def test_the_sample_has_its_sizes_and_shows_no_chart_twice() -> None:
    splits = {split: sample(split) for split in DATA_SPLITS}
    assert {split.value: len(items) for split, items in splits.items()} == {"train": 60, "val": 30, "test": 60}
    shown = [file.path for items in splits.values() for item in items for file in item.files]
    assert sorted(shown) == sorted(f"charts/{chart.name}" for chart in (FOLDER / "charts").iterdir())
    assert sum((FOLDER / path).stat().st_size for path in shown) <= MOST_BYTES


@pytest.mark.parametrize("split", list(DATA_SPLITS))
def test_every_gold_answer_scores_1(split: Split) -> None:
    for item in sample(split):
        assert len(item.files) in (2, 3)
        assert score(item, str(item.reference["answer"])).hard == 1.0
        assert score(item, "0").hard == 0.0


CHARTS = [
    "Velden 1965, in thousand tons\nRye: 26, 90 pixels high",
    "Elmstead 1935, in tons\nRye: 4101, 140 pixels high",
    "Northgate 1940, in thousand tons\nOats: 2, 10 pixels high\nRye: 31, 80 pixels high",
]
ONE, TWO, THREE = (f"[picture: picture-{number}.png]" for number in (1, 2, 3))
LARGER = f"Which picture shows more rye, {ONE} or {TWO}?"
LARGEST = f"Which picture shows more rye, {ONE} or {TWO} or {THREE}?"
MORE = f"How many tons of rye does {ONE} show more than {TWO}?"
TOTAL = f"How many tons of rye do the 3 pictures show together?\n{ONE}{TWO}{THREE}"
ALL = ["printed_values", "one_unit", "every_picture"]


@pytest.mark.parametrize(
    ("prompt", "names", "answer"),
    [
        (LARGER, [], "B"),
        (LARGER, ["printed_values"], "B"),
        (LARGER, ["printed_values", "one_unit"], "A"),
        (LARGER, ["one_unit"], "B"),
        (LARGER, ["first_picture"], "A"),
        (LARGEST, ["printed_values", "one_unit"], "A"),
        (LARGEST, ALL, "C"),
        (MORE, [], "-4075"),
        (MORE, ["one_unit"], "21899"),
        (TOTAL, [], "4127"),
        (TOTAL, ALL, "61101"),
        (TOTAL.replace("rye", "hops"), ALL, "0"),
        ("Why?", ALL, ""),
    ],
)
def test_a_directive_changes_what_it_should(prompt: str, names: list[str], answer: str) -> None:
    assert Comparison(prompt, CHARTS).answer(frozenset(names)) == answer


def test_the_seed_asks_for_no_directive() -> None:
    assert recognise(SEED_SKILL) == frozenset()


def test_a_chart_is_read_and_measured() -> None:
    title, *bars = chart_text((FOLDER / "charts" / "001-1.png").read_bytes()).splitlines()
    assert " in " in title
    assert len(bars) == 4
    values, heights = ([int(bar.split()[place].rstrip(",")) for bar in bars] for place in (1, 2))
    assert values.index(max(values)) == heights.index(max(heights))
    assert values.index(min(values)) == heights.index(min(heights))


def test_the_optimizer_tries_an_item_again_by_what_the_target_wrote_down() -> None:
    item = sample(Split.TRAIN)[1]
    prompt, response = BENCHMARK.messages(item.public, "")[1], responded(item, SEED_SKILL)
    feedback = score(item, BENCHMARK.answer(response)).feedback
    seen = SeenTrajectory(
        item_id=item.id, feedback=feedback, messages=(prompt, Message(role="assistant", content=response))
    )
    assert STANDIN.shown_by(seen)
    case = STANDIN.case(seen)
    assert case is not None
    assert [case.verdict(frozenset(names)).right for names in ([], ALL)] == [False, True]
    assert STANDIN.case(seen.model_copy(update={"messages": (prompt,)})) is None


@pytest.mark.nightly
@pytest.mark.slow
def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    # Those that the training below reads, too.
    items = sample(Split.VAL)[:16]
    seed, trained = accuracy(items, SEED_SKILL), accuracy(items, TRAINED_SKILL)
    assert 0.2 <= seed <= 0.4
    assert trained >= seed + 0.4


SHORT = {"train__num_epochs": 1, "optimizer__use_slow_update": False, "evaluation__eval_test": False}
"""Tesseract reads a picture in a third of a second."""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_whole_training_makes_it_better() -> None:
    training = Training.of("mmrb", train__steps_per_epoch=3, evaluation__val_limit=16, **SHORT)
    training()
    history = history_of(training.run)
    assert history.best_val_score >= history.seed_val_score + 0.2
