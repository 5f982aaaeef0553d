"""The stand-in on puzzles: it finds coloured blobs in a picture, and obeys the directives of the skill."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from local.standin.directive import directive
from local.standin.looking import Looking
from local.standin.sight import coloured, image_of
from local.standin.subject import Active, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image

_ASKS = "Then give the final answer as \\boxed{Answer}"
_CHOICE = re.compile(r"^\((?P<letter>[A-Z])\) (?P<text>.+)$", re.MULTILINE)
_SEEN_BLOB = re.compile(r"^(?P<colour>\w+) at (\d+),(\d+) to (\d+),(\d+)$", re.MULTILINE)
_SEEN_ENDS = re.compile(r"^ends on the (?P<side>left|right): (?P<colours>.+)$", re.MULTILINE)
_SEEN_ODD = re.compile(r"^unlike the others: row (?P<row>\d+), column (?P<column>\d+)$", re.MULTILINE)
_HOW_MANY = re.compile(r"How many (?P<colour>\w+) dots")
_BEGINS = re.compile(r"begins at the (?P<place>top|second|third|bottom)")
_COLOURS = {
    "red": (200, 30, 40),
    "blue": (30, 70, 200),
    "green": (20, 140, 60),
    "orange": (240, 150, 20),
    "dark": (60, 60, 60),
}
_FEWEST_TILES = 6
_CLOSE = 24
"""Pixels between the middles of two dots that a hasty look takes for one."""
_PLACES = ("first", "second", "third", "fourth")
ON_PUZZLES = (
    directive(
        "row_by_row",
        [r"\b(?:count|go|look)\w*\b.{0,40}\b(?:row by row|line by line|one by one)\b"],
        [
            "Count row by row, and mark what you have counted.",
            "Go through the picture row by row, so that two that are close do not count as one.",
        ],
        "Things that stand close together were counted as one.",
    ),
    directive(
        "end_to_end",
        [r"\b(?:measur|compar)\w*\b.{0,40}\b(?:end to end|both ends|one end to the other)\b"],
        [
            "Measure each bar from end to end, wherever it begins.",
            "Compare lengths by both ends and not by how far they reach.",
        ],
        "How far a bar reaches was taken for its length.",
    ),
    directive(
        "by_colour",
        [r"\bfollow\w*\b.{0,30}\b(?:colou?rs?|crossings?)\b"],
        ["Follow a line by its colour.", "Follow each line through all its crossings up to the other side."],
        "The line was taken to go straight across.",
    ),
    directive(
        "top_first",
        [r"\bfrom (?:the )?top\b.{0,12}\b(?:first|before|then)\b"],
        [
            "Count places from the top first, and from the left after that.",
            "Give the place from the top before the place from the left.",
        ],
        "The place from the left was given before the place from the top.",
    ),
    directive(
        "even_counts",
        [r"\bmak\w*\b.{0,20}\bcounts?\b.{0,20}\beven\b"],
        ["Make every count even, since such pictures are made of pairs.", "Make counts even if in doubt."],
        "The expected count was even.",
        tempting=True,
    ),
    directive(
        "first_place",
        [r"\b(?:choos|tak|pick)\w*\b.{0,20}\bfirst place\b"],
        ["Take the first place if several look alike.", "Choose the first place that comes to mind."],
        "Looking on did not make the answer better.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Blob:
    """Pixels of one colour that touch one another, by the box around them; the last row and column are within."""

    colour: str
    left: int
    top: int
    right: int
    bottom: int

    def close_to(self, other: "Blob") -> bool:
        """Return whether the middles of both are not far from each other."""
        across = (self.left + self.right - other.left - other.right) / 2
        down = (self.top + self.bottom - other.top - other.bottom) / 2
        return across**2 + down**2 < _CLOSE**2


@lru_cache(maxsize=4096)
def see(picture: bytes) -> str:
    """Return what can be found in a picture, a line each: blobs, ends of lines at both sides, a tile unlike others."""
    image = image_of(picture).convert("RGB")
    masks = {name: coloured(image, colour) for name, colour in _COLOURS.items()}
    blobs = [blob for name, mask in masks.items() for blob in _blobs(name, mask)]
    lines = [
        f"{blob.colour} at {blob.left},{blob.top} to {blob.right},{blob.bottom}"
        for blob in sorted(blobs, key=lambda blob: (blob.top, blob.left))
    ]
    boxes = [box for mask in masks.values() if (box := mask.getbbox())]
    if boxes:
        sides = {"left": min(box[0] for box in boxes), "right": max(box[2] for box in boxes) - 1}
        for side, x in sides.items():
            ends = {name: mask.crop((x, 0, x + 1, image.height)).getbbox() for name, mask in masks.items()}
            found = sorted((box[1], name) for name, box in ends.items() if box)
            lines.append(f"ends on the {side}: {' '.join(name for _, name in found)}")
    return "\n".join([*lines, *_odd(image, blobs)])


def _blobs(name: str, mask: "Image") -> Iterator[Blob]:
    """Yield the connected parts of a mask; those that touch at a corner are connected."""
    width, pixels = mask.width, mask.tobytes()
    left_over = {place for place, value in enumerate(pixels) if value}
    while left_over:
        edge = [left_over.pop()]
        found = list(edge)
        while edge:
            place = edge.pop()
            row, column = divmod(place, width)
            around = {
                other_row * width + other
                for other_row in range(row - 1, row + 2)
                for other in range(max(column - 1, 0), min(column + 2, width))
            }
            new = around & left_over
            left_over -= new
            edge += new
            found += new
        columns, rows = [place % width for place in found], [place // width for place in found]
        yield Blob(name, min(columns), min(rows), max(columns), max(rows))


def _odd(image: "Image", blobs: Sequence[Blob]) -> list[str]:
    """Return where the one tile stands that looks unlike all others, which look the same."""
    looks = {blob: image.crop((blob.left, blob.top, blob.right + 1, blob.bottom + 1)).tobytes() for blob in blobs}
    counted = Counter(looks.values())
    odd = [blob for blob, look in looks.items() if counted[look] == 1]
    if len(counted) != 2 or len(odd) != 1 or len(blobs) < _FEWEST_TILES:
        return []
    rows, columns = sorted({blob.top for blob in blobs}), sorted({blob.left for blob in blobs})
    return [f"unlike the others: row {rows.index(odd[0].top) + 1}, column {columns.index(odd[0].left) + 1}"]


def solve(question: str, seen: str, active: Active) -> str:
    """Return the answer to a question on a picture by what is seen there; empty if it cannot be found."""
    answer = _found(question, seen, active)
    choices = {found["text"].strip(): found["letter"] for found in _CHOICE.finditer(question)}
    return choices.get(answer, min(choices.values())) if choices else answer


def _found(question: str, seen: str, active: Active) -> str:
    blobs = [Blob(found["colour"], *map(int, found.groups()[1:])) for found in _SEEN_BLOB.finditer(seen)]
    asked, begins, odd = _HOW_MANY.search(question), _BEGINS.search(question), _SEEN_ODD.search(seen)
    if asked:
        return str(_count([blob for blob in blobs if blob.colour == asked["colour"]], active))
    if "bar" in question and blobs:
        return f"the {_PLACES[_bar(blobs, active, longest='longest' in question)]} bar"
    if begins:
        return str(_end(("top", "second", "third", "bottom").index(begins["place"]), seen, active) + 1)
    if odd:
        place = (odd["row"], odd["column"]) if "top_first" in active else (odd["column"], odd["row"])
        return "(1,1)" if "first_place" in active else f"({place[0]},{place[1]})"
    return ""


def _count(dots: Sequence[Blob], active: Active) -> int:
    counted: list[Blob] = []
    for dot in dots:
        if "row_by_row" in active or not any(dot.close_to(other) for other in counted):
            counted.append(dot)
    return len(counted) + len(counted) % 2 if "even_counts" in active else len(counted)


def _bar(bars: Sequence[Blob], active: Active, *, longest: bool) -> int:
    if "first_place" in active:
        return 0
    sizes = [bar.right - bar.left if "end_to_end" in active else bar.right for bar in bars][: len(_PLACES)]
    return sizes.index(max(sizes) if longest else min(sizes))


def _end(start: int, seen: str, active: Active) -> int:
    """Return the place on the right of the line that begins at a place on the left, both from 0."""
    if "first_place" in active:
        return 0
    ends = {found["side"]: found["colours"].split() for found in _SEEN_ENDS.finditer(seen)}
    left, right = ends.get("left", []), ends.get("right", [])
    if "by_colour" not in active or start >= len(left) or left[start] not in right:
        return start
    return right.index(left[start])


@dataclass(frozen=True)
class PuzzleCase:
    """A puzzle with what was seen in its picture and what was expected."""

    item_id: str
    question: str
    seen: str
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is the expected one."""
        answer = solve(self.question, self.seen, active)
        right = bool(answer) and answer == (self.expected[:1] if _CHOICE.search(self.question) else self.expected)
        return Verdict(right, float(right))


STANDIN = Looking(
    directives=ON_PUZZLES,
    empty_advice=(
        ("Read the question to its end before you look.", "A hasty reading may miss what is asked for."),
        ("Stay with what worked: look, then answer.", "The rollouts that went well did so."),
    ),
    asks=_ASKS,
    see=see,
    reply=lambda question, seen, active: f"So I find this: \\boxed{{{solve(question, seen, active)}}}",
    case_of=PuzzleCase,
)
