import asyncio

import pytest

from skillopt_airflow.gateway import page_text
from skillopt_airflow.gateway.page_text import text_of_page


def text(body: bytes, media_type: str = "text/html", charset: str = "", characters: int = 1000) -> str | None:
    return asyncio.run(text_of_page(body, media_type, charset, characters))


@pytest.mark.parametrize(
    ("body", "charset", "expected"),
    [
        ("<p>Møller".encode("latin-1"), "iso-8859-1", "Møller"),
        ('<meta charset="iso-8859-1"><p>Møller'.encode("latin-1"), "", "Møller"),
        ("<p>Møller".encode(), "utf-8", "Møller"),
        (b"<style>p {}</style><script>steal()</script><!-- hidden --><p>seen</p>", "", "seen"),
    ],
)
def test_the_text_is_read_in_the_charset_of_header_or_page(body: bytes, charset: str, expected: str) -> None:
    assert text(body, charset=charset) == expected


def test_tables_keep_their_rows() -> None:
    found = text(b"<table><tr><td>Mayor</td><td>A. Lind</td></tr><tr><td>Since</td><td>2021</td></tr></table>")
    assert found is not None
    assert [line.split() for line in found.splitlines()] == [["Mayor", "A.", "Lind"], ["Since", "2021"]]


def test_a_page_that_takes_too_long_gives_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_text, "LIMITS", page_text.LIMITS._replace(wall_seconds=0.001))
    assert text(b"<p>fine</p>") is None


@pytest.mark.parametrize("body", [b"", b"<", b"\0\0", b"<div>" * 20_000, b"<table><tr><td>" * 3000, b"&#" * 10_000])
def test_bad_html_harms_nobody(body: bytes) -> None:
    found = text(body)
    assert found is None or len(found) <= 1000
