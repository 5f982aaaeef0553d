"""The stand-in on puzzles: what it finds in the drawn pictures, and what each directive does to its answers."""

import io

from PIL import Image, ImageDraw

from benchmarks.babyvision.adapter import BENCHMARK
from benchmarks.babyvision.standin import ON_PUZZLES, STANDIN, see, solve
from local.standin.stage_request import SeenTrajectory
from tests.benchmarks.drawn_sample import DrawnSample

SOUND = [directive.name for directive in ON_PUZZLES if not directive.tempting]
TEMPTING = [directive.name for directive in ON_PUZZLES if directive.tempting]
RULE = {directive.name: f"- {directive.rules[0]}\n" for directive in ON_PUZZLES}
SAMPLE = DrawnSample("babyvision", BENCHMARK, RULE)
RECORDS, TESTED = SAMPLE.records("train"), SAMPLE.records("test")
SEED, tried, accuracy = SAMPLE.seed, SAMPLE.tried, SAMPLE.accuracy


def test_the_seed_is_bad_on_the_sample_and_a_trained_skill_is_not() -> None:
    seed, trained = accuracy(), accuracy(*SOUND)
    assert 0.15 <= seed <= 0.4
    assert trained == 1
    for name in SOUND:
        assert accuracy(*(one for one in SOUND if one != name)) <= trained - 0.1
    for name in TEMPTING:
        assert accuracy(*SOUND, name) <= trained - 0.1


def test_it_finds_blobs_and_ends_in_the_pixels() -> None:
    image = Image.new("RGB", (60, 40), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((2, 2, 10, 10), fill=(200, 30, 40))
    draw.ellipse((14, 2, 22, 10), fill=(200, 30, 40))
    draw.line([(0, 20), (30, 35), (59, 20)], fill=(30, 70, 200), width=3)
    stored = io.BytesIO()
    image.save(stored, "PNG")
    assert see(stored.getvalue()).splitlines() == [
        "red at 2,2 to 10,10",
        "red at 14,2 to 22,10",
        "blue at 0,19 to 59,36",
        "ends on the left: blue",
        "ends on the right: blue",
    ]


def test_a_trajectory_is_tried_again_by_what_it_says_of_the_picture() -> None:
    for record in RECORDS[:24]:
        trajectory, score = tried(record, SEED)
        case = STANDIN.case(trajectory)
        assert STANDIN.shown_by(trajectory)
        assert case is not None
        assert case.verdict(frozenset()).right == (score.hard == 1)
        assert case.verdict(frozenset(SOUND)).right


def test_what_cannot_be_seen_or_is_not_understood_gets_some_answer() -> None:
    assert solve("How many red dots are in the picture?", "", frozenset()) == "0"
    assert solve("Why?\n\nChoices:\n(A) so\n(B) thus\n", "", frozenset()) == "A"
    assert solve("Why?", "", frozenset()) == ""
    blank = SeenTrajectory(item_id="a", feedback="none")
    assert STANDIN.case(blank) is None
    assert not STANDIN.shown_by(blank)
