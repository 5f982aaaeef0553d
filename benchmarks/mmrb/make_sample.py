# /// script
# requires-python = ">=3.11"
# dependencies = ["pillow==13.0.0"]
# ///
"""Draws the sample data set: `uv run --script benchmarks/mmrb/make_sample.py`.

All figures are drawn by chance and mean nothing. The font is the one in Pillow (Aileron, CC0). The result depends on
Pillow's version and on SEED alone.
"""

import io
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SEED = 42
SIZES = {"train": 60, "val": 30, "test": 60}
FOLDER = Path(__file__).parent / "sample"
WIDTH, HEIGHT, BASE, TOP = 330, 230, 195, 60
INK = 187
"""Shade of bars and lines."""
SHADES = 16
_CROPS = ("Rye", "Oats", "Wheat", "Barley", "Maize", "Beans", "Flax", "Hops")
_PLACES = ("Elmstead", "Northgate", "Velden", "Harrow Hill", "Port Lindal", "Kesselby", "Marlow Bridge", "Saint Orin")
_ORDINALS = ("first", "second", "third")
_SUBTASKS = ("larger", "total", "largest", "difference", "total")
_MIXED = {"larger": 0.3, "largest": 0.3, "difference": 0.6, "total": 0.6}
"""How often the charts of a question may count in different units."""
PLAIN, THOUSANDS = "tons", "thousand tons"


@dataclass(frozen=True)
class Chart:
    """Values by crop, in tons or thousands of them, as bars or as a line."""

    title: str
    unit: str
    values: Mapping[str, int]
    as_line: bool

    def tons(self, crop: str) -> int:
        """Return a value in tons."""
        return self.values[crop] * (1000 if self.unit == THOUSANDS else 1)


def _chart(chance: random.Random, crops: Sequence[str], place: str, thousands: bool) -> Chart:
    unit = THOUSANDS if thousands else PLAIN
    least, most = (12, 95) if thousands else (1100, 98000)
    scale = chance.uniform(0.15, 1.0)
    values = {crop: round(chance.uniform(least, least + (most - least) * scale)) for crop in crops}
    return Chart(f"{place} {chance.randint(1921, 1979)}", unit, values, chance.random() < 0.4)


def _leads_astray(crop: str, charts: Sequence[Chart]) -> bool:
    """Return whether the tallest bar is in another chart than the largest value."""
    tons = [chart.tons(crop) for chart in charts]
    heights = [chart.values[crop] / max(chart.values.values()) for chart in charts]
    return heights.index(max(heights)) != tons.index(max(tons))


def _drawn(chart: Chart) -> bytes:
    """Return the chart with its values printed; its axis ends at its own largest value."""
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    draw = ImageDraw.Draw(image)
    draw.text((12, 8), f"{chart.title}, in {chart.unit}", fill=0, font=ImageFont.load_default(size=17))
    draw.line((12, BASE, WIDTH - 12, BASE), fill=0)
    font = ImageFont.load_default(size=15)
    largest, points = max(chart.values.values()), []
    for number, (crop, value) in enumerate(chart.values.items()):
        middle = 50 + 78 * number
        height = BASE - round((BASE - TOP) * value / largest)
        points.append((middle, height))
        draw.text((middle, BASE + 8), crop, fill=0, font=font, anchor="ma")
        if not chart.as_line:
            draw.rectangle((middle - 16, height, middle + 16, BASE - 1), fill=INK)
    if chart.as_line:
        draw.line(points, fill=INK, width=1)
        for left, height in points:
            draw.ellipse((left - 5, height - 5, left + 5, height + 5), fill=INK)
    for (left, height), value in zip(points, chart.values.values(), strict=True):
        place = (left, height - 9)
        draw.rectangle(draw.textbbox(place, str(value), font=font, anchor="mb"), fill=255)
        draw.text(place, str(value), fill=0, font=font, anchor="mb")
    stored = io.BytesIO()
    image.point([level * SHADES // 256 * 255 // (SHADES - 1) for level in range(256)]).save(
        stored, "PNG", optimize=True
    )
    return stored.getvalue()


def _question(subtask: str, crop: str, charts: Sequence[Chart]) -> tuple[str, list[str], str]:
    """Return the text of a question, its options and its answer."""
    tons = [chart.tons(crop) for chart in charts]
    if subtask in ("larger", "largest"):
        places = " or ".join(f"{{image#{number}}}" for number in range(1, len(charts) + 1))
        options = [f"({'ABC'[place]}) the {_ORDINALS[place]} picture" for place in range(len(charts))]
        return f"Which picture shows more {crop.lower()}, {places}?", options, "ABC"[tons.index(max(tons))]
    if subtask == "difference":
        more, less = (1, 2) if tons[0] > tons[1] else (2, 1)
        text = f"How many tons of {crop.lower()} does {{image#{more}}} show more than {{image#{less}}}?"
        return text, [], str(abs(tons[0] - tons[1]))
    return f"How many tons of {crop.lower()} do the {len(charts)} pictures show together?", [], str(sum(tons))


def main() -> None:
    """Write the charts, and a file of questions a split."""
    chance = random.Random(SEED)  # noqa: S311
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "charts").mkdir(parents=True)
    index = 0
    for split, size in SIZES.items():
        records: list[dict[str, object]] = []
        for number in range(size):
            index += 1
            subtask = _SUBTASKS[number % len(_SUBTASKS)]
            crops = chance.sample(_CROPS, 4)
            several = 3 if subtask in ("largest", "total") else 2
            mixed = chance.random() < _MIXED[subtask]
            places = chance.sample(_PLACES, several)
            charts = [
                _chart(chance, chance.sample(crops, 4), place, mixed and chance.random() < 0.5) for place in places
            ]
            leading_astray = [crop for crop in crops if _leads_astray(crop, charts)]
            crop = chance.choice(leading_astray if leading_astray and chance.random() < 0.5 else crops)
            paths = [f"charts/{index:03d}-{place}.png" for place in range(1, several + 1)]
            for path, chart in zip(paths, charts, strict=True):
                (FOLDER / path).write_bytes(_drawn(chart))
            question, options, answer = _question(subtask, crop, charts)
            records.append(
                {
                    "source": "drawn charts",
                    "subtask": subtask,
                    "index": index,
                    "question": question,
                    "options": options,
                    "answer": answer,
                    "question_type": "multi-choice" if options else "open",
                    "image_paths": paths,
                }
            )
        (FOLDER / split).mkdir()
        text = json.dumps(records, ensure_ascii=False, indent=1)
        (FOLDER / split / "items.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
