"""Pictures of items in a form that all providers accept: checked, PNG or JPEG, and scaled down.

Pictures are untrusted, so a process with limits opens them.
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
"""Limit in pixels, from Anthropic's limit for requests with many pictures; OpenAI scales to 2,048 itself."""
MAX_PIXELS = 50_000_000
"""Limit of a picture before scaling, which takes up to 4 bytes of memory per pixel."""
MAX_BYTES = 3_750_000
"""Limit of a stored picture, from Anthropic's limit of 5 MB in Base64."""
LIMITS = Limits(megabytes=1536, cpu_seconds=20, wall_seconds=60)
"""Enough memory for the libraries and four copies of a picture with MAX_PIXELS."""
THUMBNAIL_SIDE = 320
SCALE_STEP = 0.75
"""Factor by which a picture is scaled repeatedly until it has at most MAX_BYTES."""
_PAGE = re.compile(r"#page=([1-9]\d{0,5})$")


def page_of(path: str) -> tuple[str, int]:
    """Return the path of a file, and the page (1-based) of a suffix such as `#page=3`, by default the first one."""
    match = _PAGE.search(path)
    return (path[: match.start()], int(match[1])) if match else (path, 1)


def picture_reader() -> LimitedProcess:
    return LimitedProcess("skillopt_airflow.store.data.picture_files:prepare_in_process", LIMITS)


def prepare_picture(content: bytes, name: str, page: int, reader: LimitedProcess) -> bytes:
    """Return a picture for storing: the file itself if it's suitable, otherwise converted.

    Args:
        content: a PNG, JPEG, WebP, GIF, TIFF or PDF.
        name: name among the item's files, whose extension is the target format.
        page: page or frame, 1-based.
        reader: a `picture_reader`.

    Raises:
        DataError: the file has another format, is damaged or too large, takes too long, or has no such page.
    """
    try:
        return reader.call(content, name, str(page))
    except ProcessLost as error:
        raise DataError(f"the picture cannot be read: {error}. Save it as a plain picture.") from error


def prepare_in_process(content: bytes, name: str, page_number: str) -> bytes:
    """Do the work of `prepare_picture`, without limits."""
    page = int(page_number)
    kind: Literal["JPEG", "PNG"] = "JPEG" if name.lower().endswith(JPEG_SUFFIXES) else "PNG"
    if content.startswith(b"%PDF-"):
        return _encode(_pdf_page(content, page), kind)
    image = _open(content, page)
    fits = image.format == kind and max(image.size) <= MAX_SIDE and len(content) <= MAX_BYTES
    return content if fits and not _is_rotated(image) and page == 1 else _encode(image, kind)


def size_of(content: bytes) -> tuple[int, int]:
    """Return width and height of a stored picture in pixels."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        return image.size


def thumbnail(content: bytes) -> bytes:
    """Return a JPEG of a stored picture, at most THUMBNAIL_SIDE pixels wide and high."""
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        small = image.convert("RGB")
    # Otherwise Pillow copies comments and other metadata.
    small.info.clear()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    made = BytesIO()
    small.save(made, "JPEG", quality=80)
    return made.getvalue()


def _open(content: bytes, page: int) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # `_check_size` refuses such pictures.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(content), formats=FORMATS)
        _check_size(*image.size)
        image.seek(page - 1)
        _check_size(*image.size)
        image.load()
    except UnidentifiedImageError:
        raise DataError(f"not a picture in a supported format: {', '.join((*FORMATS, 'PDF'))}") from None
    except EOFError:
        raise DataError(f"the picture has no page {page}") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"the picture is damaged or too large: {error}") from error
    return image


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise DataError(f"the picture has {width:,} x {height:,} pixels. The limit is {MAX_PIXELS:,} in total.")


def _pdf_page(content: bytes, page: int) -> "Image":
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
        try:
            if page > len(document):
                raise DataError(f"the PDF has no page {page}, only {len(document)}")
            drawn = document[page - 1]
            return cast("Image", drawn.render(scale=MAX_SIDE / max(drawn.get_size())).to_pil())
        finally:
            document.close()
    except pypdfium2.PdfiumError as error:
        raise DataError(f"the PDF is damaged: {error}") from error


def _is_rotated(image: "Image") -> bool:
    # Providers may ignore this EXIF field.
    from PIL import ExifTags

    return bool(image.getexif().get(ExifTags.Base.Orientation, 1) != 1)


def _eight_bit(image: "Image") -> "Image":
    """Scale shades of more than 8 bits to 256, because Pillow's conversion would clip them."""
    if image.mode.startswith("I;16"):
        return image.point(lambda shade: shade * (1 / 256)).convert("L")
    if image.mode not in ("I", "F"):
        return image
    low, high = cast("tuple[float, float]", image.getextrema())
    if low >= 0 and high <= 255 and image.mode == "I":
        return image.convert("L")
    scale = 255 / (high - low) if high > low else 0.0
    return image.point(lambda shade: shade * scale - low * scale).convert("L")


def _encode(image: "Image", kind: Literal["JPEG", "PNG"]) -> bytes:
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(_eight_bit(image)).convert("RGBA")
    if kind == "JPEG" or upright.getchannel("A").getextrema() == (255, 255):
        # On white, because simply dropping the transparency makes it black.
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright).convert("RGB")
    side = MAX_SIDE
    while True:
        upright.thumbnail((side, side), Image.Resampling.LANCZOS)
        made = BytesIO()
        upright.save(made, kind, **({"quality": 90} if kind == "JPEG" else {"optimize": True}))
        if len(made.getvalue()) <= MAX_BYTES:
            return made.getvalue()
        side = round(max(upright.size) * SCALE_STEP)
