"""The stand-in on figures: it measures grids, curves and shapes, reads labels, and obeys the skill's directives."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from local.standin.directive import directive
from local.standin.looking import Looking
from local.standin.sight import Word, coloured, image_of, words_in
from local.standin.subject import Active, Verdict
from skillopt_airflow.core.scoring.maths_text import same_maths

if TYPE_CHECKING:
    from PIL.Image import Image

_ASKS = "Reason step by step. Then give the final answer alone inside <answer></answer> tags"
_CHOICE = re.compile(r"^(?P<letter>[A-H]):(?P<text>.+)$", re.MULTILINE)
_SCALE = re.compile(r"square stands for (?P<scale>\d+)")
_PIXELS = re.compile(r"-?\d+(?:/\d+)?")
# The c of cm is now and then read as a zero.
_LABEL = re.compile(r"(?P<number>\d+?)(?:[c0]m|°)?\D*")
_SEEN_LABEL = re.compile(r"^label (?P<number>\d+) at (?P<x>\d+),(?P<y>\d+)$", re.MULTILINE)
_SEEN_SHADE = re.compile(r"^shaded from (\d+),(\d+) to (\d+),(\d+)$", re.MULTILINE)
_SEEN_ORIGIN = re.compile(r"^origin at (\d+),(\d+)$", re.MULTILINE)
_SEEN_CURVE = re.compile(r"^curve through (.+)$", re.MULTILINE)
_SEEN_LOWEST = re.compile(r"^lowest at (\d+),(\d+)$", re.MULTILINE)
_INK, _FIGURE, _SHADE, _GRID, _AXIS = (
    (0, 0, 0),
    (30, 70, 200),
    (255, 214, 120),
    (214, 214, 214),
    (110, 110, 110),
)
ON_FIGURES = (
    directive(
        "with_unit",
        [r"\b(?:giv|writ|add|stat|keep|put|answer)\w*\b.{0,40}\bunits?\b(?! or currenc)"],
        ["Give the number with its unit, such as cm or °.", "Write the unit behind every length, area and angle."],
        "The number was given without the unit that the expected answer has.",
    ),
    directive(
        "label_of_side",
        [r"\b(?:check|match|assign|find out|decide|see)\w*\b.{0,30}\blabels?\b.{0,40}\b(?:sides?|shapes?|figures?)\b"],
        [
            "Check which label belongs to which side before you compute.",
            "Match each label to the side of the shape that it stands next to.",
        ],
        "Labels of another shape went into the computation.",
    ),
    directive(
        "from_origin",
        [r"\b(?:count|measur|read)\w*\b.{0,40}\bfrom (?:the )?(?:origin|crossing of the axes)\b"],
        [
            "Count squares from the origin and not from the edge of the grid.",
            "Read every point from the crossing of the axes, left and down being negative.",
        ],
        "Coordinates were counted from the edge of the grid.",
    ),
    directive(
        "worth_of_a_square",
        [r"\b(?:check|find out|see|ask|multiply)\w*\b.{0,40}\bsquare\b.{0,30}\b(?:stands? for|is worth)\b"],
        [
            "Check what a grid square stands for, and multiply what you count by it.",
            "Find out how much a square is worth before you give coordinates.",
        ],
        "Squares were counted, and what each stands for was left out.",
    ),
    directive(
        "rise_over_run",
        [r"\b(?:divid\w*|tak\w*|slope is)\b.{0,20}\brise\b.{0,20}\b(?:by|over)\b.{0,12}\brun\b"],
        [
            "Divide the rise by the run to get a slope.",
            "A slope is found from two points that lie far apart: take the rise over the run.",
        ],
        "The slope was given upside down.",
    ),
    directive(
        "to_the_ten",
        [r"\bround\w*\b.{0,40}\bnearest (?:ten|five)\b"],
        ["Round what you find to the nearest ten, a figure is never exact.", "Round to the nearest ten at the end."],
        "The answer was more exact than a figure can be.",
        tempting=True,
    ),
    directive(
        "highest_label",
        [r"\b(?:answer|giv|tak)\w*\b.{0,20}\bhighest label\b"],
        ["Answer with the highest label of the figure.", "Take the highest label as the answer."],
        "The expected answer is higher than what was given.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Label:
    """A number that is printed in a figure, and its middle in pixels."""

    number: int
    x: float
    y: float


def see(picture: bytes) -> str:
    """Return what can be measured in a figure, a line each: labels, a shaded box, a grid with a curve."""
    return _measured(picture)


@lru_cache(maxsize=4096)
def _measured(picture: bytes) -> str:
    image = image_of(picture).convert("RGB")
    lines = [f"label {label.number} at {label.x:.0f},{label.y:.0f}" for label in _labels(image)]
    shade = coloured(image, _SHADE).getbbox()
    if shade:
        lines.append(f"shaded from {shade[0]},{shade[1]} to {shade[2]},{shade[3]}")
    grid, axes = coloured(image, _GRID).getbbox(), coloured(image, _AXIS)
    if grid and axes.getbbox():
        lines += _graph(image, grid, axes)
    return "\n".join(lines)


def _labels(image: "Image") -> list[Label]:
    from PIL import ImageOps

    ink = coloured(image, _INK)
    if ink.getbbox() is None:
        return []
    # Strokes of the figure would be read as letters.
    stored = io.BytesIO()
    ImageOps.invert(ink).save(stored, "PNG")
    read = ((word, _LABEL.fullmatch(word.text)) for word in words_in(stored.getvalue(), enlarged=2))
    return [_label(word, int(found["number"])) for word, found in read if found]


def _label(word: Word, number: int) -> Label:
    return Label(number, word.left + word.width / 2, word.top + word.height / 2)


def _graph(image: "Image", grid: tuple[int, int, int, int], axes: "Image") -> list[str]:
    """Return origin and curve in squares from the lower left corner of the grid."""
    left, top, right, bottom = grid
    square = _square(image, grid)
    upright = axes.crop((left, top, right, top + 1)).getbbox()
    level = axes.crop((left, top, left + 1, bottom)).getbbox()
    figure = coloured(image, _FIGURE)
    drawn = figure.getbbox()
    if not (square and upright and level and drawn):
        return []
    lines = [
        f"origin at {_squares((upright[0] + upright[2] - 1) / 2, square)},"
        f"{_squares(bottom - 1 - top - (level[1] + level[3] - 1) / 2, square)}"
    ]
    points = []
    for column in range((right - 1 - left) // square + 1):
        x = left + column * square
        on = figure.crop((x, top, x + 1, bottom)).getbbox()
        if on and on[1] > 0 and on[3] < bottom - top:
            points.append(f"{column},{_squares(bottom - 1 - top - (on[1] + on[3] - 1) / 2, square, halves=True)}")
    lowest = figure.crop((left, drawn[3] - 1, right, drawn[3])).getbbox()
    if lowest:
        across = _squares((lowest[0] + lowest[2] - 1) / 2, square)
        lines.append(f"lowest at {across},{_squares(bottom - drawn[3], square)}")
    return [*lines, f"curve through {' '.join(points)}"] if points else lines


def _square(image: "Image", grid: tuple[int, int, int, int]) -> int:
    """Return the pixels from one line of the grid to the next; 0 if they cannot be told."""
    left, top, right, _ = grid
    line = coloured(image, _GRID).crop((left, top + 1, right, top + 2)).tobytes()
    starts = [place for place in range(len(line)) if line[place] and not (place and line[place - 1])]
    gaps = [after - before for before, after in pairwise(starts)]
    return min(gaps, default=0)


def _squares(pixels: float, square: int, *, halves: bool = False) -> str:
    parts = 2 if halves else 1
    return str(Fraction(round(pixels * parts / square), parts))


def solve(question: str, seen: str, active: Active) -> str:
    """Return the answer to a question on a figure by what is seen there; empty if it cannot be found."""
    labels = [Label(int(found["number"]), int(found["x"]), int(found["y"])) for found in _SEEN_LABEL.finditer(seen)]
    if "highest_label" in active and labels:
        values: tuple[Fraction, ...] = (Fraction(max(label.number for label in labels)),)
        unit = ""
    else:
        values, unit = _computed(question, seen, labels, active)
    if "to_the_ten" in active:
        values = tuple(Fraction(round(value / 10) * 10) for value in values)
    choices = {found["letter"]: found["text"] for found in _CHOICE.finditer(question)}
    if choices:
        return _nearest(values, choices)
    if not values:
        return ""
    told = ", ".join(map(str, values))
    return f"({told})" if len(values) > 1 else told + (unit if "with_unit" in active else "")


def _computed(question: str, seen: str, labels: Sequence[Label], active: Active) -> tuple[tuple[Fraction, ...], str]:
    """Return the numbers that a question asks for, none if they cannot be found, and their unit."""
    shade = _SEEN_SHADE.search(seen)
    if "rectangle" in question and shade and len(labels) > 1:
        wide, high = _sides(labels, [int(side) for side in shade.groups()], active)
        return ((Fraction(wide * high),), " cm^2") if "area" in question else ((Fraction(2 * (wide + high)),), " cm")
    if "triangle" in question and len(labels) == 2:
        return (Fraction(180 - labels[0].number - labels[1].number),), "°"
    return _on_grid(question, seen, active), ""


def _sides(labels: Sequence[Label], shade: Sequence[int], active: Active) -> tuple[int, int]:
    """Return the numbers at the lower and at the right side of a box, or simply the first two of the figure."""
    if "label_of_side" not in active:
        return labels[0].number, labels[1].number
    left, top, right, bottom = shade

    def nearest(x: float, y: float) -> int:
        return min(labels, key=lambda label: (label.x - x) ** 2 + (label.y - y) ** 2).number

    return nearest((left + right) / 2, bottom + 16), nearest(right + 34, (top + bottom) / 2)


def _on_grid(question: str, seen: str, active: Active) -> tuple[Fraction, ...]:
    origin, curve, lowest = _SEEN_ORIGIN.search(seen), _SEEN_CURVE.search(seen), _SEEN_LOWEST.search(seen)
    if not (origin and curve and lowest):
        return ()
    points = dict(_pair(point) for point in curve[1].split())
    zero = _pair(f"{origin[1]},{origin[2]}")
    (first, low), (last, high) = min(points.items()), max(points.items())
    if "slope" in question:
        return _slope(high - low, last - first, active)
    if "y-axis" in question:
        # A line leaves the grid where it is steep, and is straight all the same.
        at_zero = low + (high - low) / (last - first) * (zero[0] - first) if last > first else low
        return _scaled((at_zero,), (zero[1],), question, active)
    return _scaled(_pair(f"{lowest[1]},{lowest[2]}"), zero, question, active)


def _scaled(
    found: tuple[Fraction, ...], zeros: tuple[Fraction, ...], question: str, active: Active
) -> tuple[Fraction, ...]:
    """Return coordinates in squares as what they stand for, counted from the origin, where the skill asks for it."""
    if "from_origin" in active:
        found = tuple(value - start for value, start in zip(found, zeros, strict=True))
    scale = _SCALE.search(question)
    worth = int(scale["scale"]) if scale and "worth_of_a_square" in active else 1
    return tuple(value * worth for value in found)


def _slope(rise: Fraction, run: Fraction, active: Active) -> tuple[Fraction, ...]:
    """Return the slope, upside down unless the skill says how to get one."""
    above, below = (rise, run) if "rise_over_run" in active else (run, rise)
    return (above / below,) if below else ()


def _pair(text: str) -> tuple[Fraction, Fraction]:
    x, y = text.split(",")
    return Fraction(x), Fraction(y)


def _nearest(values: Sequence[Fraction], choices: Mapping[str, str]) -> str:
    """Return the letter of the choice with these numbers, or else with the least different ones."""
    numbers = {
        letter: [Fraction(one) for one in _PIXELS.findall(text.split("^")[0])] for letter, text in choices.items()
    }
    fitting = {letter: found for letter, found in numbers.items() if len(found) == len(values)}
    if not values or not fitting:
        return min(choices)
    return min(fitting, key=lambda letter: sum(abs(a - b) for a, b in zip(fitting[letter], values, strict=True)))


@dataclass(frozen=True)
class FigureCase:
    """A problem with what was seen of its figure and what was expected."""

    item_id: str
    question: str
    seen: str
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is right; half of the rank if only its unit is missing."""
        answer = solve(self.question, self.seen, active)
        right = self._agrees(answer)
        return Verdict(
            right, 1.0 if right else 0.5 * self._agrees(solve(self.question, self.seen, active | {"with_unit"}))
        )

    def _agrees(self, answer: str) -> bool:
        if _CHOICE.search(self.question):
            return bool(answer) and self.expected.partition(":")[0] == answer
        return same_maths(answer, self.expected)


STANDIN = Looking(
    directives=ON_FIGURES,
    empty_advice=(
        ("Read the question to its end before you look at the figure.", "A hasty reading may miss what is asked for."),
        ("Stay with what worked: look, compute, answer.", "The rollouts that went well did so."),
    ),
    asks=_ASKS,
    see=see,
    reply=lambda question, seen, active: f"So I find this.\n<answer>{solve(question, seen, active)}</answer>",
    case_of=FigureCase,
)
