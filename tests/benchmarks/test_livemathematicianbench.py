import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.real_data import ABSENT, REAL_DATA
from benchmarks.livemathematicianbench.adapter import BENCHMARK
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.scoring.choice_match import choices_named, lettered
from skillopt_airflow.core.types import Score, Status, Trajectory
from skillopt_airflow.quality.records import check_splits

PROJECT = Path(__file__).parents[2]
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
WRONG = lettered(ITEM.public["choices"])[OTHER]


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
        "one has $x \\le 1$",
        "\\boxed{\\text{One has } x\\le 1}",
        f"choice ({RIGHT})",
        f"**{RIGHT}**",
        f"\\({RIGHT}\\)",
        f"The answer is {RIGHT}.",
        f"{RIGHT} is right",
        f"<answer>{RIGHT}) since the others claim more</answer>",
        f"First \\boxed{{{OTHER}}}, then \\boxed{{\\textbf{{({RIGHT})}}}}.",
        f"It goes inside <answer> tags: <answer>{RIGHT}</answer>",
        f"{RIGHT}, not option {OTHER}",
        f"The answer is {RIGHT}. Option {OTHER} is too weak.",
        f"The answer is {RIGHT}.\n\nOption {OTHER} is too weak.",
    ],
)
def test_the_right_choice_counts_by_letter_or_text(answer: str) -> None:
    assert (score(answer).hard, score(answer).soft) == (1.0, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "<answer></answer>",
        OTHER,
        f"Not option {RIGHT}",
        f"I rule out option {RIGHT}",
        f"{OTHER}, not option {RIGHT}",
        f"{RIGHT} or {OTHER}",
        f"({RIGHT}), ({OTHER})",
        f"{RIGHT}{OTHER}",
        f"choice {RIGHT}, though choice {OTHER} holds too",
        f"<answer>{RIGHT}</answer> no, <answer>{OTHER}</answer>",
        "F",
        "none",
        "a stronger bound holds",
        "Because One has it",
        f"{RIGHT}. {WRONG}",
        WRONG,
        f"\\boxed{{{RIGHT}",
    ],
)
def test_everything_else_is_wrong(answer: str) -> None:
    assert (score(answer).hard, score(answer).soft) == (0.0, 0.0)


def test_feedback_names_what_was_expected_and_what_came() -> None:
    choices = lettered(ITEM.public["choices"])
    assert score(OTHER).feedback == f"expected {RIGHT}: {choices[RIGHT]}; answered {OTHER}: {choices[OTHER]}"
    assert score("perhaps").feedback.endswith('answered no choice that could be recognised: "perhaps"')
    both = ", ".join(sorted([RIGHT, OTHER]))
    assert score(f"{OTHER} and {RIGHT}").feedback.endswith(f"answered with more than one choice: {both}")


@given(st.text(max_size=80), st.sampled_from("ABCDE"))
def test_any_response_is_judged_and_a_letter_in_tags_is_taken(text: str, label: str) -> None:
    assert score(text).hard in (0.0, 1.0)
    assert score(f"{text}\n<answer>{label}</answer>").hard == float(label == RIGHT)


def test_case_counts_where_it_alone_tells_choices_apart() -> None:
    choices = {"A": "At most \\(n\\).", "B": "At most \\(N\\).", "C": "At most \\(M\\)."}
    assert choices_named("At most $N$", choices) == {"B"}
    assert choices_named("at most $n$", choices) == {"A", "B"}
    assert choices_named("at most $m$", choices) == {"C"}


def test_letter_and_text_agree() -> None:
    choices = lettered(ITEM.public["choices"])
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
        ({"no": True}, "no: expected a number"),
        ({"month": " "}, "month: expected a non-empty text"),
        ({"mcq": None}, "mcq: expected an object"),
        ({"mcq": RECORD["mcq"] | {"question": ""}}, "mcq.question: expected"),
        ({"mcq": RECORD["mcq"] | {"choices": "BCDE"}}, "mcq.choices: expected a list"),
        ({"mcq": RECORD["mcq"] | {"choices": [{"label": "B"}]}}, "mcq.choices[0].text: expected"),
        ({"mcq": RECORD["mcq"] | {"choices": [RECORD["mcq"]["correct_choice"]]}}, "two of the choices are the same"),
        ({"mcq": RECORD["mcq"] | {"correct_choice": "A"}}, "mcq.correct_choice: expected an object"),
        ({"mcq": RECORD["mcq"] | {"choices": [{"text": f"no {n}"} for n in range(26)]}}, "expected at most 25, got 26"),
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)):
        BENCHMARK.item(RECORD | change)


@pytest.mark.skipif(not REAL.is_dir(), reason=ABSENT)
def test_all_real_items_load_and_their_right_choice_scores_one() -> None:
    records = [record for name in ("train", "val") for record in json.loads((REAL / f"{name}.json").read_text("utf-8"))]
    items = [BENCHMARK.item(record) for record in records]
    assert len(items) == len({item.id for item in items}) == 52
    for item, record in zip(items, records, strict=True):
        right, text = str(item.reference["label"]), record["mcq"]["correct_choice"]["text"]
        assert lettered(item.public["choices"])[right] == text
        for said in (
            right,
            text,
            f"{right}. {text}",
            f"I choose {right}. {text}",
            f"{right} {text}",
            f"{right} because {text}",
        ):
            trajectory = Trajectory(
                item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(f"<answer>{said}</answer>")
            )
            assert BENCHMARK.score(item, trajectory).hard == 1.0, (item.id, said)


@pytest.mark.skipif(not REAL.is_dir(), reason=ABSENT)
def test_the_quality_suite_takes_the_real_records_and_names_one_that_comes_twice() -> None:
    splits = {name: json.loads((REAL / f"{name}.json").read_text("utf-8")) for name in ("train", "val")}
    check = partial(
        check_splits,
        identity=BENCHMARK.identity,
        required_texts=BENCHMARK.text_columns,
        required_lists=BENCHMARK.list_columns,
    )
    assert check("real", splits).success
    twice = splits | {"val": [*splits["val"], splits["train"][0]]}
    with pytest.raises(DataError, match=r"the same id is used by an earlier record \(train row 1\) in val row 18"):
        check("real", twice).raise_for_failures()
