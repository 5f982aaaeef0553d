"""The stand-in on figures: what it measures in the drawn pictures, and what each directive does to its answers."""

import re

import pytest

from benchmarks.mathverse.adapter import BENCHMARK
from benchmarks.mathverse.standin import ON_FIGURES, STANDIN, FigureCase, see, solve
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Verdict
from tests.benchmarks.drawn_sample import DrawnSample

SOUND = [directive.name for directive in ON_FIGURES if not directive.tempting]
TEMPTING = [directive.name for directive in ON_FIGURES if directive.tempting]
RULE = {directive.name: f"- {directive.rules[0]}\n" for directive in ON_FIGURES}
SAMPLE = DrawnSample("mathverse", BENCHMARK, RULE)
RECORDS, TESTED = SAMPLE.records("train"), SAMPLE.records("test")
SEED, tried, accuracy = SAMPLE.seed, SAMPLE.tried, SAMPLE.accuracy


@pytest.mark.nightly
def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    seed, trained = accuracy(), accuracy(*SOUND)
    assert 0.2 <= seed <= 0.4
    assert trained >= 0.95
    for name in SOUND:
        assert accuracy(*(one for one in SOUND if one != name)) <= trained - 0.04
    for name in TEMPTING:
        assert accuracy(*SOUND, name) <= trained - 0.2


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ("rectangle", r"(label \d\d at \d+,\d+\n){4}shaded from \d+,\d+ to \d+,\d+"),
        ("triangle", r"(label \d\d at \d+,\d+\n?){2}"),
        ("graph", r"origin at \d+,\d+\nlowest at \d+,\d+\ncurve through (\d+,\d+(/2)? ?)+"),
    ],
)
def test_it_measures_the_pixels(asked: str, pattern: str) -> None:
    pictures = [(SAMPLE.folder / row["image"]).read_bytes() for row in TESTED if asked in row["question"]]
    assert len(pictures) >= 10
    measured = [re.fullmatch(pattern, see(picture)) for picture in pictures]
    assert measured.count(None) <= len(pictures) / 10


@pytest.mark.nightly
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
