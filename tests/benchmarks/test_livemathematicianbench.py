import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.livemathematicianbench import make_sample
from benchmarks.livemathematicianbench.adapter import BENCHMARK, choices_named, lettered
from include.core.errors import DataError
from include.core.types import Score, Status, Trajectory

PROJECT = Path(__file__).parents[2]
REAL = PROJECT.parent / "shared" / "data" / "livemathematicianbench"
RECORD: dict[str, Any] = {
    "no": 8,
    "month": "202602",
    "theorem": "SECRET theorem",
    "sketch": "SECRET sketch",
    "mcq": {
        "question": "Which statement holds?",
        "correct_choice": {"label": "A", "text": "One has \\(x\\,\\le 1\\)."},
        "choices": [{"label": label, "text": f"wrong {label}"} for label in "BCDE"],
    },
}
ITEM = BENCHMARK.item(RECORD)
RIGHT = str(ITEM.reference["label"])
OTHER = "A" if RIGHT != "A" else "B"


def score(answer: str) -> Score:
    return BENCHMARK.score(ITEM, Trajectory(item_id=ITEM.id, status=Status.OK, answer=BENCHMARK.answer(answer)))


@pytest.mark.parametrize(
    "answer",
    [
        RIGHT,
        RIGHT.lower(),
        f"({RIGHT})",
        f"{RIGHT}.",
        f"choice {RIGHT}",
        f"Option {RIGHT}",
        f"\\boxed{{{RIGHT}}}",
        f"\\boxed{{\\text{{{RIGHT}}}}}",
        f"I think so.\n<answer>{RIGHT}</answer>",
        f"<answer>{OTHER}</answer> no, <answer> {RIGHT} </answer>",
        f"Reasons.\n{RIGHT}",
        "One has \\(x \\le 1\\)",
        "one  has \\(x\\,\\le 1\\).",
        f"{RIGHT}. One has \\(x\\,\\le 1\\).",
    ],
)
def test_the_right_choice_counts_by_letter_or_text(answer: str) -> None:
    assert (score(answer).hard, score(answer).soft) == (1.0, 1.0)


@pytest.mark.parametrize(
    "answer", ["", OTHER, f"{RIGHT} or {OTHER}", f"{RIGHT}{OTHER}", "F", "none", f"{RIGHT}. wrong B", "wrong C"]
)
def test_everything_else_is_wrong(answer: str) -> None:
    assert (score(answer).hard, score(answer).soft) == (0.0, 0.0)


def test_feedback_names_what_was_expected_and_what_came() -> None:
    choices = lettered(ITEM.public)
    assert score(OTHER).feedback == f"expected {RIGHT}: {choices[RIGHT]}; answered {OTHER}: {choices[OTHER]}"
    assert "no choice that could be recognised" in score("perhaps").feedback


def test_letter_and_text_agree() -> None:
    choices = lettered(ITEM.public)
    assert choices[RIGHT] == ITEM.reference["answer"] == RECORD["mcq"]["correct_choice"]["text"]
    assert all(choices_named(text, choices) == {label} for label, text in choices.items())


def test_the_shuffle_is_seeded_by_the_item_and_the_right_choice_is_not_always_in_one_place() -> None:
    assert BENCHMARK.item(RECORD) == ITEM
    places = Counter(BENCHMARK.item(RECORD | {"no": number}).reference["label"] for number in range(200))
    assert set(places) == set("ABCDE")
    assert max(places.values()) < 80


def test_nothing_but_question_and_choices_is_shown() -> None:
    shown = json.dumps(ITEM.public) + "".join(message.content for message in BENCHMARK.messages(ITEM.public, "skill"))
    assert "SECRET" not in shown
    assert ITEM.public.keys() == {"question", "choices"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"no": None}, "no: expected a number"),
        ({"month": " "}, "month: expected a non-empty text"),
        ({"mcq": None}, "mcq: expected an object"),
        ({"mcq": RECORD["mcq"] | {"question": ""}}, "mcq.question: expected"),
        ({"mcq": RECORD["mcq"] | {"choices": "BCDE"}}, "mcq.choices: expected a list"),
        ({"mcq": RECORD["mcq"] | {"choices": [{"label": "B"}]}}, "mcq.choices[0].text: expected"),
        ({"mcq": RECORD["mcq"] | {"choices": [RECORD["mcq"]["correct_choice"]]}}, "two of the choices are the same"),
        ({"mcq": RECORD["mcq"] | {"correct_choice": "A"}}, "mcq.correct_choice: expected an object"),
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)):
        BENCHMARK.item(RECORD | change)


@pytest.mark.skipif(not REAL.is_dir(), reason="LiveMathematicianBench's items are not at ../shared/data")
def test_all_real_items_load() -> None:
    records = [record for name in ("train", "val") for record in json.loads((REAL / f"{name}.json").read_text("utf-8"))]
    items = [BENCHMARK.item(record) for record in records]
    assert len(items) == len({item.id for item in items}) == 52
    for item, record in zip(items, records, strict=True):
        assert lettered(item.public)[str(item.reference["label"])] == record["mcq"]["correct_choice"]["text"]


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    make_sample.main(tmp_path)
    for path in sorted(tmp_path.rglob("items.json")):
        committed = make_sample.FOLDER / path.relative_to(tmp_path)
        assert committed.read_bytes() == path.read_bytes()
