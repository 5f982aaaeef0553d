"""The stand-in on several charts: it reads print and measures bars, and compares as the directives of the skill ask."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from local.standin.directive import PREFER, Directive, directive
from local.standin.sight import Word, image_of, words_in
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Subject, Tool, Verdict
from local.standin.transcription import transcribed, transcription
from skillopt_airflow.core.pictures import marked

if TYPE_CHECKING:
    from PIL.Image import Image

_PICTURES = r"(?:pictures?|charts?|images?|plots?|figures?)"
_CHOICE = re.compile(r"^Which picture shows more (?P<crop>\w+), ", re.MULTILINE)
_DIFFERENCE = re.compile(r"^How many tons of (?P<crop>\w+) does (?P<more>.+?) show more than (?P<less>.+?)\?", re.M)
_TOTAL = re.compile(r"^How many tons of (?P<crop>\w+) do the \d+ pictures show together\?", re.MULTILINE)
_MARK = re.compile(r"\[picture: picture-(\d+)\.\w+\]")
_BAR = re.compile(r"^(?P<crop>\w+): (?P<value>\d+), (?P<height>\d+) pixels high$", re.MULTILINE)
_THOUSANDS = re.compile(r"\bin thousand\b")
_INK = 187
"""Shade of what is drawn by a value."""
_RUN = 6
"""Pixels side by side: print has fewer of one shade."""
_NEAR = 35
"""Pixels between the middles of a label and of what belongs to it, at most."""
_LAYOUT, _ENLARGED = 11, 3

ON_CHARTS = (
    directive(
        "printed_values",
        [
            r"\bcompar\w+\b.{0,40}\bprinted (?:values?|numbers?)\b",
            r"\b(?:read|use|go by)\b.{0,30}\bprinted\b.{0,24}\b(?:bars?|points?|values?|numbers?)\b",
        ],
        [
            "Compare the printed values and not the heights, since each chart has an axis of its own.",
            "Go by the number printed above bars and points, however tall they look.",
        ],
        "The taller bar won, although its chart has another axis.",
    ),
    directive(
        "every_picture",
        [rf"\b(?:look at|check|go through|study|examine)\b.{{0,16}}\b(?:every|each|all)\b.{{0,20}}\b{_PICTURES}\b"],
        [
            "Look at every picture before you answer, also at those behind the question.",
            "Look at all the charts, and note what each of them shows.",
        ],
        "Only the first two pictures were taken into account.",
    ),
    directive(
        "one_unit",
        [r"\b(?:one|same|common) unit\b", r"\bconvert\w*\b.{0,40}\b(?:units?|thousands?)\b"],
        [
            "Bring all values to one unit first: a title may count in thousands.",
            "Convert thousands before you compare or add, for charts may count differently.",
        ],
        "Thousands of tons were taken for tons.",
    ),
    directive(
        "first_picture",
        [rf"{PREFER}.{{0,20}}\bfirst {_PICTURES}\b"],
        ["Trust the first picture when the pictures are close.", "Choose the first chart in case of doubt."],
        "The first picture was expected where the pictures look alike.",
        tempting=True,
    ),
)


def chart_text(picture: bytes) -> str:
    """Return the title of a chart, and of each bar or point its label, printed value and height in pixels."""
    image = image_of(picture).convert("L")
    words = words_in(picture, _LAYOUT, _ENLARGED)
    title = " ".join(word.text for word in words if word.top < image.height // 6)
    labels = [word for word in words if word.top > image.height * 5 // 6 and word.text.isalpha()]
    numbers = [word for word in words if word.text.isdecimal() and word.top >= image.height // 6]
    bars = [
        f"{label.text}: {value}, {_height(image, label)} pixels high"
        for label in labels
        if (value := _beside(label, numbers))
    ]
    return "\n".join([title, *bars])


def _beside(label: Word, numbers: Sequence[Word]) -> str:
    near = min(numbers, key=lambda number: abs(_middle(number) - _middle(label)), default=None)
    return near.text if near is not None and abs(_middle(near) - _middle(label)) <= _NEAR else ""


def _middle(word: Word) -> int:
    return word.left + word.width // 2


def _height(image: "Image", label: Word) -> int:
    """Return how far above its label the ink over it begins; 0 without ink."""
    left, top = max(0, _middle(label) - 12), image.height // 6
    pixels = image.crop((left, top, left + 24, label.top)).tobytes()
    rows = (row for row in range(label.top - top) if bytes([_INK]) * _RUN in pixels[24 * row : 24 * (row + 1)])
    return next((label.top - top - row for row in rows), 0)


@dataclass(frozen=True)
class Comparison:
    """A question on charts, and what was seen on each of them."""

    prompt: str
    charts: Sequence[str]

    def answer(self, active: Active) -> str:
        """Return a letter or a number; empty if the question is of another kind."""
        if choice := _CHOICE.search(self.prompt):
            seen = self._seen(choice["crop"], active, "value" if "printed_values" in active else "height")
            best = 0 if "first_picture" in active else max(range(len(seen)), key=seen.__getitem__, default=0)
            return ascii_uppercase[best]
        if difference := _DIFFERENCE.search(self.prompt):
            seen = self._seen(difference["crop"], active, "value", 2)
            more, less = (int(_MARK.findall(difference[side])[0]) - 1 for side in ("more", "less"))
            return str(seen[more] - seen[less]) if max(more, less) < len(seen) else ""
        total = _TOTAL.search(self.prompt)
        return str(sum(self._seen(total["crop"], active, "value"))) if total else ""

    def _seen(self, crop: str, active: Active, what: str, least: int = 1) -> list[int]:
        """Return what the charts show of a crop: all charts, or the first two."""
        looked = self.charts if "every_picture" in active else self.charts[: max(least, 2)]
        return [self._of(chart, crop, active, what) for chart in looked]

    @staticmethod
    def _of(chart: str, crop: str, active: Active, what: str) -> int:
        bar = next((bar for bar in _BAR.finditer(chart) if bar["crop"].lower() == crop.lower()), None)
        if bar is None:
            return 0
        thousands = what == "value" and "one_unit" in active and _THOUSANDS.search(chart)
        return int(bar[what]) * (1000 if thousands else 1)


@dataclass(frozen=True)
class ChartsCase:
    """A comparison and what was expected of it."""

    item_id: str
    comparison: Comparison
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is the expected one."""
        right = self.comparison.answer(active) == self.expected
        return Verdict(right, float(right))


class Charts(Subject):
    """Questions that compare several charts."""

    directives: Sequence[Directive] = ON_CHARTS
    empty_advice: Sequence[tuple[str, str]] = (
        ("Take a second look at the charts.", "A hasty look may miss something."),
        ("Stay with what worked: one question, one letter or number.", "The rollouts that went well gave one answer."),
    )
    tools: Mapping[str, Tool] = {}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt compares pictures of this kind."""
        return any(kind.search(prompt) for kind in (_CHOICE, _DIFFERENCE, _TOTAL))

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return what each chart shows and the answer."""
        charts = [chart_text(picture) for picture in self._in_order(prompt, pictures)]
        return f"{transcription(charts)}<answer>{Comparison(prompt, charts).answer(active)}</answer>"

    @staticmethod
    def _in_order(prompt: str, pictures: Sequence[bytes]) -> list[bytes]:
        """Return the pictures by number; a question may name the second before the first."""
        numbers = [int(re.sub(r"\D", "", name)) for name in marked(prompt)]
        pairs = zip(numbers, pictures, strict=False)
        return [picture for _, picture in sorted(pairs, key=lambda pair: pair[0])]

    def case(self, trajectory: SeenTrajectory) -> ChartsCase | None:
        """Return the question with what the target saw."""
        charts, expected = transcribed(trajectory), trajectory.references
        if not charts or not expected:
            return None
        return ChartsCase(trajectory.item_id, Comparison(trajectory.prompt, charts), expected[0])


STANDIN = Charts()
