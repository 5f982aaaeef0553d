"""Looking at a picture for the stand-in: pixels by Pillow, and words by tesseract, which the distribution has."""

import csv
import hashlib
import io
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from PIL import Image, ImageChops, UnidentifiedImageError

from skillopt_airflow.core.errors import EngineUnavailable, ModelError

PROGRAM, PACKAGE = "tesseract", "tesseract-ocr"
READ_SECONDS = 120.0
REMEMBERED = 20_000
"""Pictures whose words a process keeps."""
_TOLERANCE = 24
"""Levels by which each part of a colour may differ from the one that is looked for."""
_BLOCK = 6
"""Tesseract's way of reading a page as one block of lines."""
_WORD = "5"
"""The level of a word in tesseract's table."""


@dataclass(frozen=True)
class Word:
    """A printed word and its box, in pixels of the picture."""

    text: str
    left: int
    top: int
    width: int
    height: int
    line: tuple[int, ...]
    """The same for the words of one line, and growing down the page."""
    confidence: float
    """0 to 100."""


class _Reading:
    """The words of a picture, once they are read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.words: tuple[Word, ...] | None = None


_LOOKING_UP = threading.Lock()
_INSTALLING = threading.Lock()


def image_of(picture: bytes) -> Image.Image:
    """Return the picture's pixels.

    Raises:
        ModelError: it is no picture, or a damaged one.
    """
    try:
        image = Image.open(io.BytesIO(picture))
        image.load()
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ModelError(f"The picture cannot be opened: {error}") from error
    return image


def coloured(image: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    """Return a picture that has 255 where an RGB picture has about that colour, else 0."""
    red, green, blue = (
        band.point([255 if abs(value - wanted) <= _TOLERANCE else 0 for value in range(256)])
        for band, wanted in zip(image.split(), colour, strict=True)
    )
    return ImageChops.darker(ImageChops.darker(red, green), blue)


def words_in(picture: bytes, layout: int = _BLOCK, enlarged: int = 1) -> tuple[Word, ...]:
    """Return the words on a picture, line by line; a process reads each picture once.

    Args:
        picture: the file.
        layout: tesseract's --psm; 6 is a block of lines, 11 are words anywhere.
        enlarged: how many times larger it is read; small print needs 2 or 3.

    Raises:
        ModelError: it is no picture, or tesseract is not there and cannot be installed; the text says what to do.
    """
    with _LOOKING_UP:
        reading = _reading(hashlib.sha256(picture).hexdigest(), layout, enlarged)
    with reading.lock:
        if reading.words is None:
            reading.words = _recognised(image_of(picture), layout, enlarged)
    return reading.words


@lru_cache(maxsize=REMEMBERED)
def _reading(digest: str, layout: int, enlarged: int) -> _Reading:
    return _Reading()


def lines_of(words: Sequence[Word]) -> list[list[Word]]:
    """Return the words by line."""
    return [list(line) for _, line in groupby(words, key=lambda word: word.line)]


def _recognised(image: Image.Image, layout: int, enlarged: int) -> tuple[Word, ...]:
    gray = image.convert("L")
    if enlarged > 1:
        gray = gray.resize((gray.width * enlarged, gray.height * enlarged), Image.Resampling.LANCZOS)
    stored = io.BytesIO()
    gray.save(stored, "PNG")
    done = subprocess.run(
        [_program(), "stdin", "stdout", "--psm", str(layout), "-l", "eng", "tsv"],
        input=stored.getvalue(),
        capture_output=True,
        # Its own threads slow down small pictures, and requests come in parallel.
        env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        timeout=READ_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ModelError(f"tesseract cannot read the picture: {done.stderr.decode(errors='replace').strip()[-500:]}")
    rows = csv.DictReader(io.StringIO(done.stdout.decode()), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(_word(row, enlarged) for row in rows if row["level"] == _WORD and row["text"].strip())


def _word(row: dict[str, str], enlarged: int) -> Word:
    left, top, width, height = (round(int(row[side]) / enlarged) for side in ("left", "top", "width", "height"))
    line = tuple(int(row[part]) for part in ("block_num", "par_num", "line_num"))
    return Word(row["text"].strip(), left, top, width, height, line, float(row["conf"]))


def _program() -> str:
    """Return the path of tesseract, which is installed if it is not there."""
    with _INSTALLING:
        found = shutil.which(PROGRAM)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            # The client of the Docker engine, which is there too, is slow to import.
            from local.engine import install_packages

            try:
                install_packages(PACKAGE)
            except EngineUnavailable as error:
                raise ModelError(f"{PACKAGE}, which reads pictures here, cannot be installed: {error}") from error
            found = shutil.which(PROGRAM)
    if found is None:
        raise ModelError(
            f"The stand-in reads pictures with tesseract, which is not installed: `sudo apt-get install {PACKAGE}` "
            "on Debian and Ubuntu, https://tesseract-ocr.github.io/tessdoc/Installation.html elsewhere"
        )
    return found
