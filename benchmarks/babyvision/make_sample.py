"""Makes the sample: puzzles that count, compare, follow lines and look for what differs, drawn with Pillow.

`uv run --with pillow python -m benchmarks.babyvision.make_sample` writes the same pictures and records every time.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

FOLDER = Path(__file__).parent / "sample"
SIZES = {"train": 60, "val": 30, "test": 60}
SEED = 42
IMAGES = "images"
WIDTH, HEIGHT = 320, 240
PALETTE = ((255, 255, 255), (200, 30, 40), (30, 70, 200), (20, 140, 60), (240, 150, 20), (60, 60, 60))
PAPER = 0
"""Number of the colour below everything."""
COLOURS = {"red": 1, "blue": 2, "green": 3, "orange": 4}
DARK = 5
PLACES = ("first", "second", "third", "fourth")
LINES = 4
_RADIUS = 7


@dataclass(frozen=True)
class Puzzle:
    """A drawn puzzle with a choice among texts, or with a blank to fill in."""

    kind: str
    subtype: str
    question: str
    answer: str
    choices: tuple[str, ...]
    """In their order; empty for a blank."""
    picture: "Image"


def main(folder: Path = FOLDER) -> None:
    """Write the records and pictures of all splits."""
    (folder / IMAGES).mkdir(parents=True, exist_ok=True)
    rng, number = random.Random(SEED), 0  # noqa: S311
    seen: set[bytes] = set()
    for split, size in SIZES.items():
        records: list[dict[str, object]] = []
        while len(records) < size:
            puzzle = _KINDS[len(records) % len(_KINDS)](rng)
            if puzzle.picture.tobytes() in seen:
                continue
            seen.add(puzzle.picture.tobytes())
            number += 1
            puzzle.picture.save(folder / IMAGES / f"{number:03}.png", optimize=True)
            records.append(_record(puzzle, number))
        (folder / split).mkdir(exist_ok=True)
        text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
        (folder / split / "items.json").write_text(text, encoding="utf-8")


def _record(puzzle: Puzzle, number: int) -> dict[str, object]:
    """Return the puzzle in the form of the official files."""
    blank = not puzzle.choices
    return {
        "taskId": number,
        "type": puzzle.kind,
        "subtype": puzzle.subtype,
        "question": puzzle.question,
        "ansType": "blank" if blank else "choice",
        "options": list(puzzle.choices),
        "choiceAns": None if blank else puzzle.choices.index(puzzle.answer),
        "blankAns": puzzle.answer if blank else None,
        "image": f"{IMAGES}/{number:03}.png",
    }


def count(rng: random.Random) -> Puzzle:
    """Return dots of several colours, of which those of one are to be counted; some stand close to another."""
    picture, draw = _paper()
    asked, *others = rng.sample(sorted(COLOURS), 3)
    cells = [(column, row) for column in range(8) for row in range(6)]
    rng.shuffle(cells)
    pairs = rng.choice([0, 1, 2, 3])
    single = rng.randrange(4, 10)
    for place, (column, row) in enumerate(cells[: pairs + single + 12]):
        x, y = 20 + 40 * column + rng.randrange(-3, 4), 20 + 40 * row + rng.randrange(-6, 7)
        if place < pairs:
            _dot(draw, x - 9, y, COLOURS[asked])
            _dot(draw, x + 9, y, COLOURS[asked])
        else:
            _dot(draw, x, y, COLOURS[asked if place < pairs + single else rng.choice(others)])
    total = 2 * pairs + single
    choices = _numbers_near(rng, total, pairs) if rng.random() < 0.3 else ()
    question = f"How many {asked} dots are in the picture?"
    return Puzzle("Fine-grained Discrimination", "Count", question, str(total), choices, picture)


def compare(rng: random.Random) -> Puzzle:
    """Return bars, of which the longest or the shortest is to be found; they begin at different places."""
    picture, draw = _paper()
    longest = rng.random() < 0.5
    lengths = rng.sample(range(90, 191, 12), LINES)
    for row, length in enumerate(lengths):
        start = rng.randrange(10, WIDTH - 10 - length)
        draw.rectangle((start, 30 + 52 * row, start + length - 1, 46 + 52 * row), fill=rng.choice([*COLOURS.values()]))
    place = lengths.index(max(lengths) if longest else min(lengths))
    question = f"Which bar is the {'longest' if longest else 'shortest'}, counted from the top?"
    return Puzzle("Spatial Perception", "Compare", question, _bar(place), tuple(map(_bar, range(LINES))), picture)


def follow(rng: random.Random) -> Puzzle:
    """Return lines that cross, of which one is to be followed to its end."""
    picture, draw = _paper()
    heights = [30 + 60 * place for place in range(LINES)]
    ends, colours = [*heights], [*COLOURS.values()]
    rng.shuffle(ends)
    rng.shuffle(colours)
    for start, end, colour in zip(heights, ends, colours, strict=True):
        between = [(x, rng.randrange(20, HEIGHT - 20)) for x in (90, 160, 230)]
        draw.line([(10, start), (40, start), *between, (280, end), (310, end)], fill=colour, width=4)
    asked = rng.randrange(LINES)
    question = (
        f"Follow the line that begins {_from_the_top(asked)} on the left. At which place does it end on the right, "
        "counted from the top? Give a number."
    )
    answer = str(heights.index(ends[asked]) + 1)
    return Puzzle("Visual Tracking", "Follow", question, answer, (), picture)


def differs(rng: random.Random) -> Puzzle:
    """Return a grid of tiles of which one is mirrored."""
    picture, draw = _paper()
    rows, columns, turned = rng.randrange(3, 6), rng.randrange(4, 8), rng.randrange(4)
    odd = (rng.randrange(rows), rng.randrange(columns))
    colour = rng.choice([*COLOURS.values(), DARK])
    for row in range(rows):
        for column in range(columns):
            _tile(draw, 12 + 44 * column, 12 + 44 * row, colour, turned, mirrored=(row, column) == odd)
    question = "One tile is not like the others. Where is it? Give it as (row, column), counted from 1 at the top left."
    answer = f"({odd[0] + 1},{odd[1] + 1})"
    return Puzzle("Visual Pattern Recognition", "Differ", question, answer, (), picture)


_KINDS: tuple[Callable[[random.Random], Puzzle], ...] = (count, compare, follow, differs)


def _paper() -> "tuple[Image, ImageDraw]":
    """Return an empty picture of few colours, and what draws on it."""
    from PIL import Image, ImageDraw

    picture = Image.new("P", (WIDTH, HEIGHT), PAPER)
    picture.putpalette([part for colour in PALETTE for part in colour])
    return picture, ImageDraw.Draw(picture)


def _dot(draw: "ImageDraw", x: int, y: int, colour: int) -> None:
    draw.ellipse((x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS), fill=colour)


def _tile(draw: "ImageDraw", x: int, y: int, colour: int, turned: int, *, mirrored: bool) -> None:
    """Draw a hook of three strokes within 32 pixels, turned by so many right angles."""
    strokes: Sequence[tuple[int, int, int, int]] = ((0, 0, 7, 31), (0, 24, 31, 31), (8, 0, 19, 7))
    for left, top, right, bottom in strokes:
        box = (31 - right, top, 31 - left, bottom) if mirrored else (left, top, right, bottom)
        for _ in range(turned):
            box = (31 - box[3], box[0], 31 - box[1], box[2])
        draw.rectangle((x + box[0], y + box[1], x + box[2], y + box[3]), fill=colour)


def _numbers_near(rng: random.Random, right: int, pairs: int) -> tuple[str, ...]:
    """Return four numbers with the right one among them, and the one that takes each pair for one dot."""
    wrong = dict.fromkeys((right - pairs, right + 1, right - 1, right + 2, right - 2))
    numbers = [right, *[number for number in wrong if number != right][: LINES - 1]]
    rng.shuffle(numbers)
    return tuple(map(str, numbers))


def _bar(place: int) -> str:
    return f"the {PLACES[place]} bar"


def _from_the_top(place: int) -> str:
    return ("at the top", "at the second place from the top", "at the third place from the top", "at the bottom")[place]


if __name__ == "__main__":
    main()
