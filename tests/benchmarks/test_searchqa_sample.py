import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.real_data import ABSENT, SEARCHQA
from benchmarks.searchqa.adapter import BENCHMARK, DOCUMENT_MARK, MAX_CONTEXT_CHARS
from local.standin.reader import respond
from skillopt_airflow.core.split_by_ratio import split_by_ratio
from skillopt_airflow.core.types import DATA_SPLITS, Item, Split, Status, Trajectory

PROJECT = Path(__file__).parents[2]
SAMPLE = PROJECT / "benchmarks" / "searchqa" / "sample"
SEED_SKILL = (PROJECT / "skills" / "searchqa" / "initial.md").read_text(encoding="utf-8")
TRAINED_SKILL = """# Answering clues from search results

- Do not answer with words that the clue itself contains.
- Trust the pages that have most words in common with the question; they cover the clue.
- Ordinary words can be the answer too.
- Favour phrases that several documents mention: what recurs across documents is no accident.
- Numbers are answers only when the clue asks for one.
"""


def sample(split: Split) -> list[Item]:
    records = json.loads((SAMPLE / split / "items.json").read_text(encoding="utf-8"))
    return [BENCHMARK.item(record) for record in records]


def exact_match(items: Sequence[Item], skill: str) -> float:
    """Share of items that the stand-in answers exactly under a skill."""
    right = 0.0
    for item in items:
        messages = BENCHMARK.messages(item.public, skill)
        answer = BENCHMARK.answer(respond(messages[0].content, messages[1].content))
        right += BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer)).hard
    return right / len(items)


def test_the_sample_has_its_sizes_and_no_item_twice() -> None:
    splits = {split: sample(split) for split in DATA_SPLITS}
    assert {split.value: len(items) for split, items in splits.items()} == {"train": 120, "val": 60, "test": 120}
    everything = [item for items in splits.values() for item in items]
    assert len({item.id for item in everything}) == len({item.public["question"] for item in everything}) == 300


@pytest.mark.parametrize("split", list(DATA_SPLITS))
def test_an_item_has_six_to_twelve_documents_that_hold_the_answer_and_fit(split: Split) -> None:
    for item in sample(split):
        context, answers = str(item.public["context"]), item.reference["answers"]
        assert 6 <= context.count(DOCUMENT_MARK) <= 12
        assert len(context) <= MAX_CONTEXT_CHARS
        assert isinstance(answers, list)
        assert str(answers[0]) in context
        assert str(answers[0]).lower() not in str(item.public["question"]).lower()


def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    items = sample(Split.TEST)
    seed, trained = exact_match(items, SEED_SKILL), exact_match(items, TRAINED_SKILL)
    assert 0.15 <= seed <= 0.35
    assert trained >= seed + 0.2


@pytest.mark.skipif(not SEARCHQA.is_file(), reason=ABSENT)
def test_the_same_skill_lifts_real_items() -> None:
    items = [BENCHMARK.item(record) for record in json.loads(SEARCHQA.read_text(encoding="utf-8"))]
    held_out = split_by_ratio(items, "2:1:7", 42)[Split.TEST]
    assert exact_match(held_out, SEED_SKILL) < 0.20
    assert exact_match(held_out, TRAINED_SKILL) >= 0.28
