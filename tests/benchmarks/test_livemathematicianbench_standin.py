import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.real_data import ABSENT, REAL_DATA
from benchmarks.livemathematicianbench.adapter import BENCHMARK
from benchmarks.livemathematicianbench.standin import Question
from local.standin.directives import ON_DOCUMENTS
from local.standin.reader import respond
from skillopt_airflow.core.scoring.choice_match import lettered
from skillopt_airflow.core.types import DATA_SPLITS, Item, JsonObject, Status, Trajectory

PROJECT = Path(__file__).parents[2]
SAMPLE = PROJECT / "benchmarks" / "livemathematicianbench" / "sample"
REAL = REAL_DATA / "livemathematicianbench" / "train.json"
SEED = (PROJECT / "skills" / "livemathematicianbench" / "initial.md").read_text(encoding="utf-8")
WILDCARD = "\n- Leave aside choices that only say that another one is right.\n"
STRONGEST = "\n- Be wary of the strongest option, it often drops a condition that the result needs.\n"
LONGEST = "\n- Pick the longest choice, it was written with the most care.\n"


def loaded(path: Path) -> list[Item]:
    return [BENCHMARK.item(record) for record in json.loads(path.read_text(encoding="utf-8"))]


def accuracy(skill: str) -> float:
    items = [item for split in DATA_SPLITS for item in loaded(SAMPLE / split / "items.json")]
    right = 0.0
    for item in items:
        system, user = BENCHMARK.messages(item.public, skill)
        answer = BENCHMARK.answer(respond(system.content, user.content))
        right += BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer)).hard
    return right / len(items)


def picked(choices: list[str], *names: str) -> str:
    item: JsonObject = {"question": "What can be proved about the divisors of n?", "choices": [*choices]}
    question = Question.of_prompt(BENCHMARK.messages(item, "")[1].content)
    assert question is not None
    return question.pick(frozenset(names)).text


def test_the_directives_on_choices_help_and_the_tempting_one_hurts() -> None:
    seed = accuracy(SEED)
    assert 0.2 <= seed <= 0.4
    assert accuracy(SEED + WILDCARD) >= seed + 0.08
    assert accuracy(SEED + STRONGEST) >= seed + 0.12
    assert accuracy(SEED + WILDCARD + STRONGEST) >= seed + 0.4
    assert accuracy(SEED + LONGEST) <= seed - 0.15


WEAK, STRONG = "The divisors of n divide k.", "The divisors of n always divide k."
NOTHING = "One of the remaining options is correct."
LONG = "Unlike what one may expect at first sight, k is a unit."


@pytest.mark.parametrize(
    ("choices", "name", "without", "with_it"),
    [
        ([STRONG, "Primes divide k."], "distrust_strongest", STRONG, "Primes divide k."),
        (["Primes divide k.", NOTHING], "exclude_wildcard", NOTHING, "Primes divide k."),
        ([WEAK, LONG], "longest_choice", WEAK, LONG),
    ],
)
def test_a_directive_changes_what_it_should(choices: list[str], name: str, without: str, with_it: str) -> None:
    assert picked(choices) == without
    assert picked(choices, name) == with_it
    assert picked(choices, *(directive.name for directive in ON_DOCUMENTS)) == without


def test_a_choice_may_have_several_lines_of_which_one_looks_like_a_choice() -> None:
    item: JsonObject = {
        "question": "Let\nA. Weil be given. Which holds?\nQ. E. D.",
        "choices": ["x:\n\\[\nD. y\n\\]", "z", "u\n\nv"],
    }
    question = Question.of_prompt(BENCHMARK.messages(item, "")[1].content)
    assert question is not None
    assert {choice.label: choice.text for choice in question.choices} == {"A": "x: \\[ D. y \\]", "B": "z", "C": "u v"}


@pytest.mark.parametrize(
    "prompt",
    ["Why did you choose that?", "", "A. one\nB. two", "A. one\n\nGive the letter of the right choice inside tags."],
)
def test_what_offers_no_choices_is_read_as_before(prompt: str) -> None:
    assert Question.of_prompt(prompt) is None
    assert "directives: none" in respond(SEED, prompt)


@given(st.text("AB.\nx ", max_size=60), st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=26))
def test_any_choices_get_a_letter_of_theirs(question: str, choices: list[str]) -> None:
    public: JsonObject = {"question": question, "choices": [*choices]}
    prompt = BENCHMARK.messages(public, "")[1].content
    response = respond("", prompt)
    assert response == respond("", prompt)
    if "choices" in response:
        assert BENCHMARK.answer(response) in lettered(public["choices"])


@pytest.mark.skipif(not REAL.is_file(), reason=ABSENT)
def test_real_choices_are_read_as_the_target_sees_them() -> None:
    for item in loaded(REAL):
        question = Question.of_prompt(BENCHMARK.messages(item.public, "")[1].content)
        assert question is not None
        assert {choice.label: choice.text for choice in question.choices} == {
            label: " ".join(text.split()) for label, text in lettered(item.public["choices"]).items()
        }
