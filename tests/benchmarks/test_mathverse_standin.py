"""The stand-in on figures: what it measures in the drawn pictures, and what each directive does to its answers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mathverse.adapter import BENCHMARK
from benchmarks.mathverse.standin import ON_FIGURES, STANDIN, FigureCase, see, solve
from local.standin.directives import recognise
from local.standin.reader import respond
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Verdict
from skillopt_airflow.core.types import Message, Score, Status, Trajectory

PROJECT = Path(__file__).parents[2]
SAMPLE = PROJECT / "benchmarks" / "mathverse" / "sample"
SEED = (PROJECT / "skills" / "mathverse" / "initial.md").read_text(encoding="utf-8")
SOUND = [directive.name for directive in ON_FIGURES if not directive.tempting]
TEMPTING = [directive.name for directive in ON_FIGURES if directive.tempting]
RULE = {directive.name: f"- {directive.rules[0]}\n" for directive in ON_FIGURES}
RECORDS = json.loads((SAMPLE / "train" / "items.json").read_text("utf-8"))
TESTED = json.loads((SAMPLE / "test" / "items.json").read_text("utf-8"))


def tried(record: dict[str, Any], skill: str) -> tuple[SeenTrajectory, Score]:
    """What the optimizer sees of the stand-in's work on a record, and its score."""
    item = BENCHMARK.item(record)
    system, user = BENCHMARK.messages(item.public, skill)
    reply = respond(system.content, user.content, [(SAMPLE / file.path).read_bytes() for file in item.files])
    answer = BENCHMARK.answer(reply)
    score = BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))
    messages = (system, user, Message(role="assistant", content=reply))
    return SeenTrajectory(item_id=item.id, feedback=score.feedback, messages=messages), score


def accuracy(*names: str) -> float:
    """The share of the test items that are right under the seed with rules."""
    skill = SEED + "".join(RULE[name] for name in names)
    return sum(tried(record, skill)[1].hard for record in TESTED) / len(TESTED)


def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    seed, trained = accuracy(), accuracy(*SOUND)
    assert 0.2 <= seed <= 0.4
    assert trained >= 0.95
    for name in SOUND:
        assert accuracy(*(one for one in SOUND if one != name)) <= trained - 0.04
    for name in TEMPTING:
        assert accuracy(*SOUND, name) <= trained - 0.2


@pytest.mark.parametrize("directive", ON_FIGURES, ids=lambda directive: directive.name)
def test_every_wording_asks_for_its_directive_alone(directive: Any) -> None:
    for rule in directive.rules:
        assert recognise(rule) == {directive.name}


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ("rectangle", r"(label \d\d at \d+,\d+\n){4}shaded from \d+,\d+ to \d+,\d+"),
        ("triangle", r"(label \d\d at \d+,\d+\n?){2}"),
        ("graph", r"origin at \d+,\d+\nlowest at \d+,\d+\ncurve through (\d+,\d+(/2)? ?)+"),
    ],
)
def test_it_measures_the_pixels(asked: str, pattern: str) -> None:
    pictures = [(SAMPLE / row["image"]).read_bytes() for row in TESTED if asked in row["question"]]
    assert len(pictures) >= 10
    measured = [re.fullmatch(pattern, see(picture)) for picture in pictures]
    assert measured.count(None) <= len(pictures) / 10


def test_a_trajectory_is_tried_again_by_what_it_says_of_the_figure() -> None:
    for record in RECORDS[:24]:
        trajectory, score = tried(record, SEED)
        case = STANDIN.case(trajectory)
        assert STANDIN.shown_by(trajectory)
        assert case is not None
        assert case.verdict(frozenset()).right == (score.hard == 1)
        trained = tried(record, SEED + "".join(RULE[name] for name in SOUND))[1]
        assert case.verdict(frozenset(SOUND)).right == (trained.hard == 1)


def test_half_of_the_rank_is_due_to_a_number_without_its_unit() -> None:
    question = "Two angles of the triangle are given. Find the third one, at the top."
    case = FigureCase("a", question, "label 50 at 1,1\nlabel 60 at 9,1", "70°")
    assert case.verdict(frozenset(["with_unit"])) == Verdict(right=True, reciprocal_rank=1.0)
    assert case.verdict(frozenset()) == Verdict(right=False, reciprocal_rank=0.5)
    assert case.verdict(frozenset(["highest_label"])) == Verdict(right=False, reciprocal_rank=0.0)


def test_what_cannot_be_seen_or_is_not_understood_gets_some_answer() -> None:
    assert solve("Find the slope of the line.", "", frozenset(SOUND)) == ""
    assert solve("Prove it.\nChoices:\nA:yes\nB:no", "", frozenset()) == "A"
    blank = SeenTrajectory(item_id="a", feedback="none")
    assert STANDIN.case(blank) is None
    assert not STANDIN.shown_by(blank)
