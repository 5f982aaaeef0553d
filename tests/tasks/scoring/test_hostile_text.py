"""Any answer or response is read in little time: models loop, and code in a container can write what it likes."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import Item, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import JudgesFiles, JudgesRepository
from skillopt_airflow.tasks.scoring.extraction import MAX_PATTERN_CHARS, Extraction
from skillopt_airflow.tasks.scoring.json_fields import JsonFields
from skillopt_airflow.tasks.scoring.scoring_rule import MAX_ANSWER_CHARS, Scoring
from skillopt_airflow.tasks.task_group import ANSWER_RULES, SCORING_RULES
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.rollouts.judging import score_of

CHARS = 64 * 1024
SECONDS = 1.0
"""Of the processor, for 64 KB."""
PIECES = [
    *("1", "1,", ",111", "1,11", "1.", "1 ", "1/", "$1", "1 %", "10^", "1e9", "-", "\u22121", "\u2079", "1\u00a0"),
    *("`", "```", "```json\n", "```json\n{", "\n```", "'", '"', "\\", "$", "$a", "\\(a", "*A*", "**", "_", "- ", "(A)"),
    *("[", "]", "[1,", '["', "{", "}", '{"', '{"a":', '{"a":[', '{"a":{}},', "[[{", "(", ")", "(a", "|", ";", "NaN,"),
    *("<", ">", "<answer>", "<answer ", "</answer>", "<answer>a", "<|begin_of_box|>", "<action>", "answer [", "<b>"),
    *("\\boxed{", "\\boxed", "\\frac{1}{", "\\text{", "\\sqrt{", "^{", "\\,", "\\left(", "=", "a=1", "sqrt(1)"),
    *(" ", "\t", "\n", "\r\n", " \n", "\u2028", "\u00a0", "\0", "a", "a ", "A ", "A, ", "A and ", "Answer: ", "not "),
    *("The answer is A. ", "B is wrong", "B) x\n", "is ", "\ufdfa", "\u0130", "\u2167", "a\u0301", "\U0001f3f3"),
    *("\u3001", "?", "A or ", "A.", "A)", "**A", "\u4e0dA", "a, ", "</answer>\n", "<a"),
]
ARGUMENTS: Mapping[str, JsonObject] = {"regex": {"pattern": r".*(Answer:)+ (.*)+x|Answer: (.*)"}}
"""Of the rules that need some."""
REFERENCES: Mapping[str, Any] = {
    "number": 1.5,
    "figures": "[1, 2, 3]",
    "choice": "A",
    "regex": r"(.*\d+)+ [ap]+les|(a|a)*$|(1+)+x",
    "list": ["the Nile", "1,000", "Rhine and Elbe"],
    "json": {"a": 1, "b": "Nile"},
}
MORE_RULES: list[tuple[JsonObject, JsonObject, Any]] = [
    ({"by": "exact", "normalized": True}, {}, "the Nile"),
    ({"by": "choice", "choices": "c"}, {"c": ["x = 1", r"\frac{1}{2}", "the Nile"]}, "A"),
    ({"by": "list", "each": {"by": "number"}, "ordered": True}, {}, [1, 2]),
    ({"by": "anls"}, {}, "1" * (MAX_ANSWER_CHARS - 1)),
    ({"by": "json", "fields": {"a": {"by": "anls"}}}, {}, {"a": "Nile"}),
]


@st.composite
def hostile(draw: st.DrawFn) -> str:
    """Draw 64 KB of a few pieces, over and over, perhaps with other ones around."""
    pieces = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
    before, again, after = draw(pieces), draw(pieces), draw(pieces)
    halves = draw(st.booleans())
    middle = again * (CHARS // len(again))
    return before + (middle[: CHARS // 2] + after * (CHARS // 2 // len(after)) if halves else middle) + after


def quickly(read: Callable[[str], object], text: str) -> None:
    """Read a text, and its beginning that is short enough to be compared."""
    for part in (text, text[: MAX_ANSWER_CHARS - 10], f"<answer>{text}</answer>"):
        begun = time.thread_time()
        read(part)
        assert time.thread_time() - begun < SECONDS, part[:100]


def extraction(name: str) -> Extraction:
    return ANSWER_RULES[name].model_validate({"from": name} | ARGUMENTS.get(name, {}))


def judging(rule: JsonObject, public: JsonObject, reference: Any) -> Callable[[str], Score]:
    made: Scoring = SCORING_RULES[str(rule["by"])].model_validate(rule)
    made.check(reference, public)
    return lambda answer: made.score(answer, reference, public)


RULES = [
    *(extraction(name).extract for name in ANSWER_RULES),
    *(judging({"by": name}, {}, REFERENCES.get(name, "the Nile")) for name in SCORING_RULES),
    *(judging(*more) for more in MORE_RULES),
]
IDS = [*ANSWER_RULES, *SCORING_RULES, *(str(rule)[:40] for rule, _, _ in MORE_RULES)]


@pytest.mark.nightly
@pytest.mark.parametrize("read", RULES, ids=IDS)
def test_every_rule_is_quick_on_repeated_pieces(read: Callable[[str], object]) -> None:
    for piece in PIECES:
        quickly(read, piece * (CHARS // len(piece)))


@pytest.mark.parametrize("read", RULES, ids=IDS)
@settings(max_examples=2)
@given(text=hostile())
def test_every_rule_is_quick_on_any_text(read: Callable[[str], object], text: str) -> None:
    quickly(read, text)


@pytest.mark.parametrize("name", benchmarks.names())
@settings(max_examples=2)
@given(text=hostile())
def test_every_benchmark_is_quick_on_any_text(name: str, text: str) -> None:
    benchmark = benchmarks.load(name, benchmark_config(name).task)
    by_text = not isinstance(benchmark, JudgesFiles | JudgesRepository)

    def read(response: str) -> None:
        for answer in {benchmark.answer(response), response}:
            said = (Message(role="assistant", content=response),)
            trajectory = Trajectory(item_id="a", status="ok", answer=answer, messages=said)
            for item in sample_items(name) if by_text else ():
                benchmark.score(item, trajectory)

    quickly(read, text)


def sample_items(name: str) -> list[Item]:
    """Return the first record of a benchmark's sample."""
    if name not in ITEMS:
        benchmark = benchmarks.load(name, benchmark_config(name).task)
        file = Path(benchmarks.folder(name)) / "sample" / "train" / "items.json"
        ITEMS[name] = [benchmark.item(record) for record in json.loads(file.read_text(encoding="utf-8"))[:1]]
    return ITEMS[name]


ITEMS: dict[str, list[Item]] = {}
LONG = {
    "tags": ("<answer>Nile</answer>", "Nile"),
    "last_line": ("\nNile", "Nile"),
    "json": ('\n```json\n{"a": 1}\n```', '{"a": 1}'),
    "choice": ("\nThe answer is B.", "B"),
    "boxed": (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "regex": ("\nAnswer: Nile", "Nile"),
}
"""An end for each rule of extraction, and the answer in it."""


@pytest.mark.parametrize("name", ANSWER_RULES)
def test_an_answer_is_found_after_a_long_reasoning(name: str) -> None:
    end, answer = LONG[name]
    reasoning = "Let me think: option A gives f(x) = {x | x > 1}, and [1, 2] is not in <b>it</b>.\n"
    for chars in (CHARS, 100_000, 4_000_000):
        begun = time.thread_time()
        assert extraction(name).extract(reasoning * (chars // len(reasoning)) + end) == answer
        assert time.thread_time() - begun < 10 * SECONDS


def test_a_choice_is_found_at_the_beginning_of_a_long_response_and_a_regular_expression_at_the_end() -> None:
    assert extraction("choice").extract("The answer is C.\n" + "The river is long.\n" * 10_000) == "C"
    rule = extraction("regex")
    assert rule.extract("Answer: Nile\n" + "a" * (MAX_PATTERN_CHARS - 20)) == "Nile"
    assert rule.extract("Answer: Nile\n" + "a" * MAX_PATTERN_CHARS) == ""


@pytest.mark.parametrize("depth", [*range(900, 1000, 7), 5_000])
def test_a_nested_answer_is_scored_as_0(depth: int) -> None:
    answer = '{"a": ' + "[" * depth + "]" * depth + "}"
    assert JsonFields().score(answer, {"a": 1}, {}).hard == 0.0
    extraction("json").extract(answer)


def test_an_answer_that_is_too_long_is_scored_as_0_with_the_reason() -> None:
    score = judging({"by": "contains"}, {}, "the Nile")("the Nile " * MAX_ANSWER_CHARS)
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert "the answer cannot be read" in score.feedback
    assert str(MAX_ANSWER_CHARS) in score.feedback


@pytest.mark.parametrize("error", [RecursionError("too deep"), ValueError("no"), MemoryError()])
def test_an_error_of_a_benchmark_is_a_score_of_0_with_the_reason(error: Exception) -> None:
    class Failing:
        def score(self, item: Item, trajectory: Trajectory) -> Score:
            raise error

    item, trajectory = Item(id="a", public={}, reference={}), Trajectory(item_id="a", status="ok", answer="x")
    failing: Any = Failing()
    score = score_of("failing", failing, item, trajectory, {}, dict)
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert f"the answer cannot be read: {type(error).__name__}" in score.feedback
