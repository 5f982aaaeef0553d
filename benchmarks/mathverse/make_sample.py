"""Makes the sample: rectangles, triangles and graphs of functions, drawn with Pillow.

`uv run --with pillow python -m benchmarks.mathverse.make_sample` writes the same pictures and records every time. What
a problem asks for is in the picture alone: its text names no length, no angle and no point.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 60, "val": 30, "test": 60}
SEED = 42
IMAGES = "images"
SIDE = 340
"""Pixels of a side of every picture."""
PAPER, INK, FIGURE, SHADE, GRID, AXIS = range(6)
"""Numbers of the colours."""
PALETTE = ((255, 255, 255), (0, 0, 0), (30, 70, 200), (255, 214, 120), (214, 214, 214), (110, 110, 110))
SQUARE, SQUARES = 20, 16
"""Pixels of a side of a graph's grid square, and squares a row."""
MARGIN = 10
_PRINT = 20
_LINE = 3
CHOICES = 4
Point = tuple[float, float]


@dataclass(frozen=True)
class Problem:
    """A drawn problem; an answer with a unit has it behind the number."""

    kind: str
    subject: str
    subfield: str
    question: str
    answer: str
    wrong: tuple[str, ...]
    """The answer of a careless reader."""
    picture: "Image"
    free: bool = field(default=False)


def main(folder: Path = FOLDER) -> None:
    """Write the records and pictures of all splits."""
    (folder / IMAGES).mkdir(parents=True, exist_ok=True)
    rng, number = random.Random(SEED), 0  # noqa: S311
    seen: set[object] = set()
    for split, size in SIZES.items():
        records: list[dict[str, object]] = []
        while len(records) < size:
            problem = _KINDS[len(records) % len(_KINDS)](rng)
            # No problem comes twice, whichever picture it has.
            key = (problem.kind, problem.question, problem.answer, problem.wrong)
            if key in seen:
                continue
            seen.add(key)
            number += 1
            problem.picture.save(folder / IMAGES / f"{number:03}.png", optimize=True)
            records.append(_record(problem, number, rng))
        (folder / split).mkdir(exist_ok=True)
        text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
        (folder / split / "items.json").write_text(text, encoding="utf-8")


def _record(problem: Problem, number: int, rng: random.Random) -> dict[str, object]:
    """Return the problem in the form of the official files."""
    question, answer = problem.question, problem.answer
    if not problem.free:
        wrong = [text for text in dict.fromkeys(problem.wrong) if text != answer][: CHOICES - 1]
        choices = [answer, *wrong]
        rng.shuffle(choices)
        listed = "\n".join(f"{letter}:{text}" for letter, text in zip("ABCD", choices, strict=False))
        question, answer = f"{question}\nChoices:\n{listed}", "ABCD"[choices.index(answer)]
    return {
        "sample_index": str(number),
        "problem_index": str(number),
        "problem_version": "Vision Dominant",
        "question": question,
        "image": f"{IMAGES}/{number:03}.png",
        "answer": answer,
        "question_type": "free-form" if problem.free else "multi-choice",
        "metadata": {"split": "sample", "source": "drawn", "subject": problem.subject, "subfield": problem.subfield},
        "question_for_eval": question,
    }


def rectangles(rng: random.Random) -> Problem:
    """Return two rectangles with their sides, of which the shaded one is asked for."""
    (wide, high), (other_wide, other_high) = (_sides(rng), _sides(rng))
    while {wide, high} & {other_wide, other_high}:
        other_wide, other_high = _sides(rng)
    picture, draw = _paper()
    boxes = [(15, 60, 15 + 5 * a, 60 + 5 * b) for a, b in ((wide, high), (other_wide, other_high))]
    moved = 150 + rng.randrange(20)
    shaded_left = rng.random() < 0.5
    for (left, top, right, bottom), shaded in zip(boxes, (True, False), strict=True):
        across = 0 if shaded == shaded_left else moved
        down = rng.randrange(60)
        box = (left + across, top + down, right + across, bottom + down)
        draw.rectangle(box, fill=SHADE if shaded else PAPER, outline=FIGURE, width=_LINE)
        sides = (wide, high) if shaded else (other_wide, other_high)
        _print(draw, ((box[0] + box[2]) / 2, box[3] + 16), f"{sides[0]} cm")
        _print(draw, (box[2] + 34, (box[1] + box[3]) / 2), f"{sides[1]} cm")
    area = rng.random() < 0.5
    unit, measure = ("cm^2", "area") if area else ("cm", "perimeter")
    made = [
        a * b if area else 2 * (a + b)
        for a, b in ((wide, high), (high, other_high), (wide, other_wide), (other_wide, other_high))
    ]
    answer, *wrong = [f"{value} {unit}" for value in made]
    question = f"Find the {measure} of the shaded rectangle."
    subfield = "Area" if area else "Length"
    return Problem("rectangles", "Plane Geometry", subfield, question, answer, (*wrong,), picture, rng.random() < 0.7)


def triangle(rng: random.Random) -> Problem:
    """Return a triangle with two angles, of which the third is asked for."""
    one = rng.randrange(35, 75)
    other = rng.randrange(35, 75)
    third = 180 - one - other
    base, start = 250.0, (45.0, 250.0)
    length = base * sin(other * pi / 180) / sin(third * pi / 180)
    if length * sin(one * pi / 180) > 200:
        base *= 200 / (length * sin(one * pi / 180))
        length = base * sin(other * pi / 180) / sin(third * pi / 180)
    top = (start[0] + length * cos(one * pi / 180), start[1] - length * sin(one * pi / 180))
    picture, draw = _paper()
    draw.line([start, (start[0] + base, start[1]), top, start], fill=FIGURE, width=_LINE)
    _print(draw, (start[0] - 14, start[1] + 20), f"{one}°")
    _print(draw, (start[0] + base + 14, start[1] + 20), f"{other}°")
    question = "Two angles of the triangle are given. Find the third one, at the top."
    wrong = (f"{one + other}°", f"{180 - one}°", f"{third + 10}°")
    answer, free = f"{third}°", rng.random() < 0.4
    return Problem("triangle", "Plane Geometry", "Angle", question, answer, wrong, picture, free)


def slope(rng: random.Random) -> Problem:
    """Return a straight line, of which the slope is asked for."""
    rise = rng.choice([-3, -2, -1, 1, 2, 3])
    run = rng.choice([1, 2])
    at = rng.randrange(-2, 3)
    picture, _, _ = _graph(rng, lambda x: Fraction(rise, run) * x + at)
    answer = str(Fraction(rise, run))
    wrong = (str(-Fraction(rise, run)), str(Fraction(run, rise)), str(Fraction(rise, run) + 1), str(at))
    return Problem("slope", "Functions", "Property", "Find the slope of the line.", answer, wrong, picture, rise > 1)


def intercept(rng: random.Random) -> Problem:
    """Return a straight line, of which the value at 0 is asked for."""
    rise, at, scale = rng.choice([-2, -1, 1, 2]), rng.choice([-3, -2, -1, 1, 2, 3]), rng.choice([1, 1, 2, 5])
    picture, _, down = _graph(rng, lambda x: Fraction(rise) * x + at)
    answer = str(at * scale)
    question = f"Where does the line cross the y-axis?{_scaled(scale)} Give the value of y."
    others = (Fraction(at, scale), SQUARES - down + at, -at, at + 1, at - 1)
    wrong = tuple(str(other * scale) for other in others)
    return Problem("intercept", "Functions", "Coordinate", question, answer, wrong, picture, rng.random() < 0.6)


def lowest(rng: random.Random) -> Problem:
    """Return a parabola, of which the vertex is asked for."""
    x, y, scale = rng.randrange(-4, 5), rng.randrange(-4, 2), rng.choice([1, 1, 2, 5])
    narrow = rng.choice([Fraction(1, 2), Fraction(1)])
    picture, across, down = _graph(rng, lambda at: narrow * (at - x) ** 2 + y)
    answer = f"({x * scale}, {y * scale})"
    question = f"Find the lowest point of the graph.{_scaled(scale)} Give it as (x, y)."
    wrong = (
        f"({x}, {y})",
        f"({(across + x) * scale}, {(SQUARES - down + y) * scale})",
        f"({y * scale}, {x * scale})",
        f"({-x * scale}, {y * scale})",
        f"({x * scale}, {(y - 1) * scale})",
    )
    return Problem("lowest", "Functions", "Coordinate", question, answer, wrong, picture, rng.random() < 0.6)


_KINDS: tuple[Callable[[random.Random], Problem], ...] = (rectangles, triangle, slope, intercept, lowest, triangle)


def _scaled(scale: int) -> str:
    return "" if scale == 1 else f" A side of a grid square stands for {scale}."


def _sides(rng: random.Random) -> tuple[int, int]:
    return rng.randrange(10, 18), rng.randrange(10, 22)


def _paper() -> "tuple[Image, ImageDraw]":
    """Return an empty picture of few colours, and what draws on it."""
    from PIL import Image, ImageDraw

    picture = Image.new("P", (SIDE, SIDE), PAPER)
    picture.putpalette([part for colour in PALETTE for part in colour])
    return picture, ImageDraw.Draw(picture)


def _print(draw: "ImageDraw", middle: Point, text: str) -> None:
    from PIL import ImageFont

    draw.text(middle, text, fill=INK, font=ImageFont.load_default(size=_PRINT), anchor="mm")


def _graph(rng: random.Random, value: Callable[[Fraction], Fraction]) -> "tuple[Image, int, int]":
    """Draw a function on a grid; return the picture and the origin, in squares from the left and from the top."""
    across, down = rng.randrange(6, 11), rng.randrange(6, 11)
    picture, draw = _paper()
    end = MARGIN + SQUARE * SQUARES
    for number in range(SQUARES + 1):
        at = MARGIN + SQUARE * number
        draw.line([(at, MARGIN), (at, end)], fill=GRID)
        draw.line([(MARGIN, at), (end, at)], fill=GRID)
    zero = (MARGIN + SQUARE * across, MARGIN + SQUARE * down)
    draw.line([(zero[0], MARGIN), (zero[0], end)], fill=AXIS, width=_LINE)
    draw.line([(MARGIN, zero[1]), (end, zero[1])], fill=AXIS, width=_LINE)
    points = []
    for pixel in range(MARGIN, end + 1):
        y = zero[1] - SQUARE * value(Fraction(pixel - zero[0], SQUARE))
        if MARGIN <= y <= end:
            points.append((float(pixel), float(y)))
    draw.line(points, fill=FIGURE, width=_LINE)
    return picture, across, down


if __name__ == "__main__":
    main()
