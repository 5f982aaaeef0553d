import json
from collections import Counter
from typing import Any

import pytest

from bench.real_data import ABSENT, REAL_DATA
from benchmarks.livemathematicianbench.adapter import BENCHMARK
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Score, Status, Trajectory
from skillopt_airflow.tasks.scoring.choice_match import choices_by_letter, choices_named

REAL = REAL_DATA / "livemathematicianbench"
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
WRONG = choices_by_letter(ITEM.public["choices"])[OTHER]


def score(answer: str) -> Score:
    return BENCHMARK.score(ITEM, Trajectory(item_id=ITEM.id, status=Status.OK, answer=BENCHMARK.answer(answer)))


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (RIGHT.lower(), True),
        (f"\\boxed{{\\text{{{RIGHT}}}}}", True),
        (f"Reasons.\n{RIGHT}", True),
        ("one  has \\(x\\,\\le 1\\).", True),
        ("\\boxed{\\text{One has } x\\le 1}", True),
        (f"First \\boxed{{{OTHER}}}, then \\boxed{{\\textbf{{({RIGHT})}}}}.", True),
        ("", False),
        (f"{RIGHT} or {OTHER}", False),
        (f"<answer>{RIGHT}</answer> no, <answer>{OTHER}</answer>", False),
        ("a stronger bound holds", False),
        (f"{RIGHT}. {WRONG}", False),
    ],
)
def test_the_right_choice_counts_by_letter_or_text_and_nothing_else(answer: str, right: bool) -> None:
    assert (score(answer).hard, score(answer).soft) == (right, right)


def test_letter_and_text_agree_and_no_two_choices_do() -> None:
    choices = choices_by_letter(ITEM.public["choices"])
    assert choices[RIGHT] == ITEM.reference["answer"] == RECORD["mcq"]["correct_choice"]["text"]
    assert all(choices_named(text, choices) == {label} for label, text in choices.items())
    with pytest.raises(DataError, match="the same"):
        BENCHMARK.item(RECORD | {"mcq": RECORD["mcq"] | {"choices": [RECORD["mcq"]["correct_choice"]]}})


def test_the_shuffle_is_seeded_by_the_item_and_the_right_choice_is_not_always_in_one_place() -> None:
    assert BENCHMARK.item(RECORD) == ITEM
    places = Counter(BENCHMARK.item(RECORD | {"no": number}).reference["label"] for number in range(200))
    assert set(places) == set("ABCDE")
    assert max(places.values()) < 80


def test_nothing_but_question_and_choices_is_shown() -> None:
    shown = json.dumps(ITEM.public) + "".join(message.content for message in BENCHMARK.messages(ITEM.public, "skill"))
    assert "SECRET" not in shown
    assert ITEM.public.keys() == {"question", "choices"}


@pytest.mark.skipif(not REAL.is_dir(), reason=ABSENT)
def test_all_real_items_load_and_their_right_choice_scores_one() -> None:
    records = [record for name in ("train", "val") for record in json.loads((REAL / f"{name}.json").read_text("utf-8"))]
    items = [BENCHMARK.item(record) for record in records]
    assert len(items) == len({item.id for item in items}) == 52
    for item, record in zip(items, records, strict=True):
        right, text = str(item.reference["label"]), record["mcq"]["correct_choice"]["text"]
        assert choices_by_letter(item.public["choices"])[right] == text
        for said in (right, text, f"{right}. {text}", f"I choose {right}. {text}", f"{right} because {text}"):
            trajectory = Trajectory(
                item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(f"<answer>{said}</answer>")
            )
            assert BENCHMARK.score(item, trajectory).hard == 1.0, (item.id, said)
