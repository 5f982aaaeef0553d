"""Pages that are read as they should be; what may not be read is in test_search_escapes.py."""

import asyncio
import gzip
import ssl
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from skillopt_airflow.gateway.page_fetcher import PageFetcher, PageRefused, PageUnreachable
from tests.certificates import certificate
from tests.gateway.page_server import Names, PageServer, fetcher, leading_to, page, page_server

HTML = "<html><head><title>T</title><script>var x = 1</script></head><body><h1>Harbour</h1><p>Open <b>daily</b>.</p>"


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    pages = {
        "/": page(HTML),
        "/old": leading_to("/"),
        "/packed": page(gzip.compress(HTML.encode()), content_encoding="gzip"),
        "/plain": page("One <b>\n\n\nTwo", "text/plain"),
        "/empty": page(""),
        "/latin": page("<p>Hi", "text/html; charset=no-such-charset"),
        "/picture": page("...", "image/png"),
        "/untyped": page("...", ""),
        "/brotli": page("...", content_encoding="br"),
        "/unpacked": page("not packed at all", content_encoding="gzip"),
        "/missing": page("gone", status=404),
        "/broken": page("oops", status=503),
    }
    with page_server(pages) as serving:
        yield serving


def read(reader: PageFetcher, address: str) -> str:
    return asyncio.run(reader.text(address))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "Harbour\nOpen daily."),
        ("/old", "Harbour\nOpen daily."),
        ("/packed", "Harbour\nOpen daily."),
        ("/plain", "One <b>\nTwo"),
        ("/empty", "[the page has no text]"),
        ("/latin", "Hi"),
    ],
)
def test_a_page_is_read_as_text(server: PageServer, path: str, text: str) -> None:
    assert read(fetcher(server), server.address(path)) == text


def test_a_long_page_is_cut(server: PageServer) -> None:
    assert read(fetcher(server, characters=4), server.address("/")) == "Harb"


def test_the_server_is_told_which_of_its_names_is_meant(server: PageServer) -> None:
    read(fetcher(server), server.address("/", "harbour.example"))
    assert server.asked[-1] == (f"harbour.example:{server.port}", "/")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/picture", "image/png"),
        ("/untyped", "of no type"),
        ("/brotli", "packed as br"),
        ("/unpacked", "is not gzip"),
        ("/missing", "status 404"),
        ("/broken", "status 503"),
    ],
)
def test_what_is_not_a_page_is_refused_with_a_reason(server: PageServer, path: str, reason: str) -> None:
    with pytest.raises(PageRefused, match=reason):
        read(fetcher(server), server.address(path))


def test_only_what_may_be_gone_another_time_is_unreachable(server: PageServer) -> None:
    class NoNames(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            raise OSError("no such host")

    for reader, path in ((fetcher(server), "/broken"), (fetcher(server, NoNames()), "/")):
        with pytest.raises(PageUnreachable):
            read(reader, server.address(path))
    with pytest.raises(PageRefused) as refused:
        read(fetcher(server), server.address("/missing"))
    assert not isinstance(refused.value, PageUnreachable)


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"), "news.example")


def test_a_server_has_to_show_the_certificate_of_the_name_and_not_of_its_address(news: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(news)
    with page_server({"/": page(HTML)}, serving) as server:
        reader = replace(fetcher(server), tls=ssl.create_default_context(cafile=str(news)))
        for host, ends in (("news.example", nullcontext()), ("bank.example", pytest.raises(PageUnreachable))):
            with ends:
                assert read(reader, f"https://{host}:{server.port}/") == "Harbour\nOpen daily."
