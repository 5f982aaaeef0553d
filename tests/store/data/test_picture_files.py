"""Pictures as users bring them: each of a kind that providers take afterwards, or refused with the reason."""

import struct
import zlib
from io import BytesIO
from typing import Any

import pypdfium2
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.store.data import picture_files
from skillopt_airflow.store.data.picture_files import (
    MAX_BYTES,
    MAX_PIXELS,
    MAX_SIDE,
    page_of,
    picture_reader,
    prepare_picture,
    size_of,
    thumbnail,
)

RED, BLUE = (200, 30, 30), (30, 30, 200)


def drawn(kind: str, size: tuple[int, int] = (60, 40), colour: Any = RED, mode: str = "RGB", **options: Any) -> bytes:
    made = BytesIO()
    Image.new(mode, size, colour).save(made, kind, **options)
    return made.getvalue()


def pages(kind: str, count: int) -> bytes:
    made = BytesIO()
    first, *others = (Image.new("RGB", (60, 40), BLUE if page % 2 else RED) for page in range(count))
    first.save(made, kind, save_all=True, append_images=others)
    return made.getvalue()


def pdf(count: int) -> bytes:
    document = pypdfium2.PdfDocument.new()
    for page in range(count):
        document.new_page(300, 200 + 100 * page)
    made = BytesIO()
    document.save(made)
    return made.getvalue()


def prepared(content: bytes, name: str, page: int = 1) -> bytes:
    with picture_reader() as reader:
        return prepare_picture(content, name, page, reader)


def opened(content: bytes) -> Image.Image:
    image = Image.open(BytesIO(content))
    image.load()
    return image


@pytest.mark.parametrize(("kind", "name"), [("PNG", "a.png"), ("JPEG", "a.jpg")])
def test_what_is_fit_is_stored_as_it_is(kind: str, name: str) -> None:
    content = drawn(kind)
    assert prepared(content, name) == content
    assert size_of(content) == (60, 40)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["WEBP", "GIF", "TIFF", "JPEG"])
def test_other_formats_become_png(kind: str) -> None:
    image = opened(prepared(drawn(kind), "a.png"))
    assert (image.format, image.size, image.mode) == ("PNG", (60, 40), "RGB")
    red, _, blue = image.getpixel((30, 20))  # type: ignore[misc]
    assert red > 180
    assert blue < 60


@pytest.mark.nightly
def test_the_name_decides_the_format_and_a_photo_that_lies_on_its_side_is_turned() -> None:
    assert opened(prepared(drawn("PNG"), "photo.JPG")).format == "JPEG"
    # What is transparent stays so in a PNG and is white in a JPEG.
    clear = drawn("PNG", size=(3000, 10), colour=(0, 0, 0, 0), mode="RGBA")
    assert opened(prepared(clear, "a.png")).mode == "RGBA"
    assert min(opened(prepared(clear, "a.jpg")).getpixel((5, 3))) > 250  # type: ignore[arg-type, type-var]
    exif = Image.Exif()
    exif[0x0112] = 6
    assert opened(prepared(drawn("JPEG", exif=exif), "a.jpg")).size == (40, 60)


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "largest"), [("I;16", 65_535), ("I", 65_535), ("F", 1.0), ("I", 255)])
def test_shades_of_more_than_eight_bits_stay_apart(mode: str, largest: float) -> None:
    image, made = Image.new(mode, (64, 1)), BytesIO()
    for place in range(64):
        image.putpixel((place, 0), largest * place / 63 if mode == "F" else int(largest * place / 63))
    image.save(made, "TIFF")
    found = opened(prepared(made.getvalue(), "x.tiff"))
    shades = [found.convert("L").getpixel((place, 0)) for place in range(64)]
    assert shades[0] == 0
    assert shades[-1] in (254, 255)
    assert len(set(shades)) == 64


@pytest.mark.nightly
def test_a_picture_of_many_pixels_or_bytes_is_scaled_until_it_has_few() -> None:
    # Forty megapixels.
    image = opened(prepared(drawn("PNG", size=(8000, 5000)), "a.png"))
    assert image.size == (MAX_SIDE, MAX_SIDE * 5 // 8)
    made = BytesIO()
    Image.effect_noise((1900, 1900), 100).convert("RGB").save(made, "PNG")
    assert len(made.getvalue()) > MAX_BYTES
    found = prepared(made.getvalue(), "a.png")
    assert len(found) <= MAX_BYTES
    assert 500 < max(size_of(found)) < 1900


@pytest.mark.nightly
def test_one_page_of_many() -> None:
    tiff = pages("TIFF", 500)
    assert opened(prepared(tiff, "a.png")).getpixel((5, 5)) == RED
    assert opened(prepared(tiff, "a.png", 500)).getpixel((5, 5)) == BLUE
    with pytest.raises(DataError, match="no page 501"):
        prepared(tiff, "a.png", 501)
    second = opened(prepared(pdf(2), "a.png", 2))
    assert (second.format, second.size) == ("PNG", (MAX_SIDE, MAX_SIDE))
    assert opened(prepared(pdf(2), "a.jpg")).size == (MAX_SIDE, MAX_SIDE * 2 // 3 + 1)
    with pytest.raises(DataError, match="no page 3"):
        prepared(pdf(2), "a.png", 3)


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png_that_claims(30_000, 30_000), "damaged or too large"),
        (png_that_claims(9000, 9000), rf"has 9,000 x 9,000 pixels\. The limit is {MAX_PIXELS:,}"),
        (png_that_claims(100, 100), "damaged"),
        (drawn("JPEG", size=(900, 900))[:2000], "damaged"),
        (b"\x89PNG\r\n\x1a\nI only say so", "damaged|not a picture"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', "not a picture"),
        (drawn("BMP"), "not a picture"),
        (b"", "not a picture"),
        (b"%PDF-1.7 and nothing else", "the PDF is damaged"),
    ],
)
def test_what_is_of_no_use_is_refused_with_the_reason(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepared(content, "a.png")


def pdf_of_forms_that_draw_each_other(depth: int) -> bytes:
    """Each form draws the next one ten times."""
    forms = []
    for number in range(depth):
        inner, resources = (b"/F Do " * 10, b"/Resources<</XObject<</F %d 0 R>>>>" % (6 + number))
        if number == depth - 1:
            inner, resources = b"0 0 10 10 re f", b""
        head = b"<</Type/XObject/Subtype/Form/BBox[0 0 600 600]%s/Length %d>>stream\n" % (resources, len(inner))
        forms.append(head + inner + b"\nendstream")
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 600]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>>>"
    pages = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", pages, page, b"<</Length 5>>stream\n/F Do\nendstream", *forms]
    made = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % one for one in enumerate(objects, 1))
    return made + b"trailer <</Size %d/Root 1 0 R>>\n%%%%EOF" % (len(objects) + 1)


def gif_of_frames(count: int) -> bytes:
    head = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    return head + b"\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00" * count + b";"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("content", "page"), [(pdf_of_forms_that_draw_each_other(8), 1), (gif_of_frames(900_000), 900_000)]
)
def test_a_small_file_that_takes_long_is_refused_alone(
    content: bytes, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_files, "LIMITS", picture_files.LIMITS._replace(cpu_seconds=1))
    with picture_reader() as reader:
        with pytest.raises(DataError, match="more than 1 s"):
            prepare_picture(content, "a.png", page, reader)
        assert prepare_picture(drawn("PNG"), "a.png", 1, reader) == drawn("PNG")


def test_a_path_may_name_a_page() -> None:
    assert page_of("a/b.pdf#page=12") == ("a/b.pdf", 12)
    assert page_of("a/b.pdf") == ("a/b.pdf", 1)
    assert page_of("a/#page=0.png") == ("a/#page=0.png", 1)


def test_a_thumbnail_is_a_small_picture_of_its_own() -> None:
    noted = Image.new("RGB", (900, 300), RED)
    made = BytesIO()
    text = PngInfo()
    text.add_text("comment", "<script>alert(1)</script>")
    noted.save(made, "PNG", pnginfo=text)
    small = thumbnail(made.getvalue())
    assert b"script" in made.getvalue()
    assert b"script" not in small
    assert (opened(small).format, opened(small).size) == ("JPEG", (320, 107))
