"""Pictures of items, as every provider takes them: checked, of one of two formats, and no larger than they use.

They come from strangers, as scans do, so a process with limits opens them.
"""

import re
import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Literal, cast

from skillopt_airflow.core.errors import DataError, ProcessLost
from skillopt_airflow.core.values.pictures import JPEG_SUFFIXES
from skillopt_airflow.limited_process import LimitedProcess, Limits

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF")
MAX_SIDE = 2000
"""Pixels; Anthropic takes no more in a request with many pictures, and OpenAI scales to 2,048 itself."""
MAX_PIXELS = 50_000_000
"""Of a picture before it is scaled, which takes up to four bytes a pixel of memory."""
MAX_BYTES = 3_750_000
"""Of a picture as it is stored; 5 MB in Base64 is Anthropic's limit."""
LIMITS = Limits(megabytes=1536, cpu_seconds=20, wall_seconds=60)
"""Four copies of a picture with MAX_PIXELS, beside the libraries."""
THUMBNAIL_SIDE = 320
SMALLER = 0.75
"""Factor by which a picture that has more bytes is scaled, as often as it takes."""
_PAGE = re.compile(r"#page=([1-9]\d{0,5})$")


def page_of(path: str) -> tuple[str, int]:
    """Return the path of a file, and the page (1-based) that `#page=3` behind it names; the first one by default."""
    found = _PAGE.search(path)
    return (path[: found.start()], int(found[1])) if found else (path, 1)


def picture_reader() -> LimitedProcess:
    return LimitedProcess("skillopt_airflow.store.data.picture_files:prepared_here", LIMITS)


def prepared(content: bytes, name: str, page: int = 1, reader: LimitedProcess | None = None) -> bytes:
    """Return a picture as it is stored: the file itself if it is fit for that, and otherwise made anew.

    Args:
        content: a PNG, JPEG, WebP, GIF or TIFF, of which one page (or frame) is taken, or a PDF, of which one is drawn.
        name: its name among the item's files, whose ending says the format.
        page: which one, 1-based.

    Raises:
        DataError: it is none of these, damaged, too large, takes too long, or has no such page.
    """
    process = picture_reader() if reader is None else reader
    try:
        return process.call(content, name, str(page))
    except ProcessLost as error:
        raise DataError(f"the picture cannot be read: {error}. Save it as a plain picture") from error
    finally:
        if reader is None:
            process.close()


def prepared_here(content: bytes, name: str, page_number: str) -> bytes:
    """Return what `prepared` does, without limits."""
    page = int(page_number)
    kind: Literal["JPEG", "PNG"] = "JPEG" if name.lower().endswith(JPEG_SUFFIXES) else "PNG"
    if content.startswith(b"%PDF-"):
        return _encoded(_pdf_page(content, page), kind)
    image = _opened(content, page)
    fit = image.format == kind and max(image.size) <= MAX_SIDE and len(content) <= MAX_BYTES
    return content if fit and not _needs_turning(image) and page == 1 else _encoded(image, kind)


def size_of(content: bytes) -> tuple[int, int]:
    """Return width and height of a stored picture in pixels."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        return image.size


def thumbnail(content: bytes) -> bytes:
    """Return a stored picture made anew, at most THUMBNAIL_SIDE pixels wide and high."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        small = image.convert("RGB")
    # Comments and the like would be written again.
    small.info.clear()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    made = BytesIO()
    small.save(made, "JPEG", quality=80)
    return made.getvalue()


def _opened(content: bytes, page: int) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # It is told by the size, below.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(content), formats=FORMATS)
        _check_size(*image.size)
        image.seek(page - 1)
        _check_size(*image.size)
        image.load()
    except UnidentifiedImageError:
        raise DataError(f"it is no picture that can be read: expected one of {', '.join((*FORMATS, 'PDF'))}") from None
    except EOFError:
        raise DataError(f"the picture has no page {page}") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"the picture is damaged or too large: {error}") from error
    return image


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise DataError(f"the picture has {width:,} x {height:,} pixels; it may have {MAX_PIXELS:,} in all")


def _pdf_page(content: bytes, page: int) -> "Image":
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
        try:
            if page > len(document):
                raise DataError(f"the PDF has no page {page}, but {len(document)}")
            drawn = document[page - 1]
            return cast("Image", drawn.render(scale=MAX_SIDE / max(drawn.get_size())).to_pil())
        finally:
            document.close()
    except pypdfium2.PdfiumError as error:
        raise DataError(f"the PDF is damaged: {error}") from error


def _needs_turning(image: "Image") -> bool:
    """Return whether a camera's note says to turn it, which providers may not read."""
    from PIL import ExifTags

    return bool(image.getexif().get(ExifTags.Base.Orientation, 1) != 1)


def _eight_bit(image: "Image") -> "Image":
    """Return a picture whose shades have more than 8 bits with 256 of them, which a conversion would cut off."""
    if image.mode.startswith("I;16"):
        return image.point(lambda shade: shade * (1 / 256)).convert("L")
    if image.mode not in ("I", "F"):
        return image
    low, high = cast("tuple[float, float]", image.getextrema())
    if low >= 0 and high <= 255 and image.mode == "I":
        return image.convert("L")
    scale = 255 / (high - low) if high > low else 0.0
    return image.point(lambda shade: shade * scale - low * scale).convert("L")


def _encoded(image: "Image", kind: Literal["JPEG", "PNG"]) -> bytes:
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(_eight_bit(image)).convert("RGBA")
    if kind == "JPEG" or upright.getchannel("A").getextrema() == (255, 255):
        # What is transparent looks white on paper, and black where it is merely dropped.
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright).convert("RGB")
    side = MAX_SIDE
    while True:
        upright.thumbnail((side, side), Image.Resampling.LANCZOS)
        made = BytesIO()
        upright.save(made, kind, **({"quality": 90} if kind == "JPEG" else {"optimize": True}))
        if len(made.getvalue()) <= MAX_BYTES:
            return made.getvalue()
        side = round(max(upright.size) * SMALLER)
