"""Ways out of the sandbox that a search opens, each contained: real servers on loopback, names that lead anywhere.

The fetcher is the product's; only what its names resolve to, and that one server's port counts as the web's, is set.
"""

import asyncio
import resource
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from threading import Event

import pytest

from skillopt_airflow.gateway.page_fetcher import PageFetcher, PageRefused, PageUnreachable
from tests.gateway.page_server import Names, PageServer, fetcher, leading_to, page, page_server

METADATA = "169.254.169.254"
SECRET = "what-only-this-machine-may-read"
MEGABYTE = 1_000_000
GIGABYTE = 1000 * MEGABYTE
ENDED = Event()
"""Set when a server of endless pages was left alone."""


def sends(request: BaseHTTPRequestHandler, chunk: bytes, times: int, **headers: str) -> None:
    request.send_response(200)
    for name, value in ({"content-type": "text/plain"} | headers).items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    with suppress(OSError):
        for _ in range(times):
            request.wfile.write(chunk)
    ENDED.set()


def huge(request: BaseHTTPRequestHandler) -> None:
    """1 GB, as it says."""
    sends(request, b"a" * MEGABYTE, GIGABYTE // MEGABYTE, content_length=str(GIGABYTE))


def endless(request: BaseHTTPRequestHandler) -> None:
    """Never says how much there is, nor ends."""
    sends(request, b"a" * MEGABYTE, 10**9)


def slow(request: BaseHTTPRequestHandler) -> None:
    """A letter whenever the reader might give up."""
    request.send_response(200)
    request.send_header("content-type", "text/plain")
    request.end_headers()
    for _ in range(1000):
        request.wfile.write(b"a")
        request.wfile.flush()
        if STOPPED.wait(0.05):
            return


STOPPED = Event()


def bomb(request: BaseHTTPRequestHandler) -> None:
    """A megabyte that unpacks to a gigabyte: a block of zeros, a thousand times."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = first + again * (GIGABYTE // MEGABYTE)
    assert len(packed) < 2 * MEGABYTE
    sends(request, packed, 1, content_encoding="deflate", content_length=str(len(packed)))


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    pages = {
        "/secret": page(SECRET),
        "/huge": huge,
        "/endless": endless,
        "/slow": slow,
        "/bomb": bomb,
        "/to-file": leading_to("file:///etc/passwd"),
        "/round": leading_to("/round"),
        "/to-loopback": leading_to("http://127.0.0.1/secret"),
    }
    with page_server(pages) as serving:
        yield serving
    STOPPED.set()


def refused(reader: PageFetcher, address: str) -> str:
    """Why a page is not read."""
    with pytest.raises(PageRefused) as refusal:
        asyncio.run(reader.text(address))
    return str(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        f"http://[::ffff:{METADATA}]/latest/meta-data/",
        "http://2852039166/latest/meta-data/",
        "http://metadata.google.internal/computeMetadata/v1/",
    ],
)
def test_the_metadata_of_a_cloud_are_not_read(server: PageServer, address: str) -> None:
    class Real(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            from skillopt_airflow.gateway.public_address import resolved

            return [METADATA] if host.endswith(".internal") else list(await resolved(host, port))

    assert "not public" in refused(fetcher(server, Real()), address)


@pytest.mark.parametrize(
    "address",
    [
        *("file:///etc/passwd", "FILE:/etc/passwd", "file://localhost/proc/self/environ", "/etc/passwd"),
        *("ftp://news.example/", "gopher://news.example/_x", "data:text/html,hi", "unix:///gateway/model.sock"),
        *("http:///etc/passwd", "http://", "", "//news.example/", "../../etc/passwd"),
    ],
)
def test_only_pages_of_the_web_are_read(server: PageServer, address: str) -> None:
    names = Names()
    assert "http" in refused(fetcher(server, names), address)
    assert not names.asked


def test_dots_in_an_address_stay_on_its_server(server: PageServer) -> None:
    reader = fetcher(server)
    assert asyncio.run(reader.text(server.address("/pages/../../../secret"))) == SECRET
    assert server.asked[-1][1] == "/secret"


def test_loopback_is_refused_by_name_and_number(server: PageServer) -> None:
    product = PageFetcher(seconds=5.0, max_bytes=MEGABYTE, characters=100)
    asked = len(server.asked)
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "2130706433", "0x7f.1"):
        assert refused(product, f"http://{host}:{server.port}/secret")
        assert "not public" in refused(product, f"http://{host}/secret")
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("path", "reason"), [("/to-loopback", "not public"), ("/to-file", "http://"), ("/round", "more than 5")]
)
def test_a_redirect_is_looked_at_like_an_address(server: PageServer, path: str, reason: str) -> None:
    assert reason in refused(fetcher(server), server.address(path))
    assert ("127.0.0.1", "/secret") not in server.asked


def test_a_name_that_is_private_the_second_time_is_not_asked_twice(server: PageServer) -> None:
    names = Names({"rebinding.example": ["127.0.0.1", METADATA]})
    reader = fetcher(server, names)
    # What was looked at is what is connected to: the second answer is never heard.
    assert asyncio.run(reader.text(server.address("/secret", "rebinding.example"))) == SECRET
    assert names.asked == ["rebinding.example"]
    # For another page the name is resolved anew, and looked at anew.
    assert "not public" in refused(reader, server.address("/secret", "rebinding.example"))


def test_a_name_with_a_private_address_among_others_is_refused(server: PageServer) -> None:
    class Both(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            return ["127.0.0.1", "10.0.0.1"]

    assert "not public" in refused(fetcher(server, Both()), server.address("/secret"))


def test_credentials_in_an_address_are_not_sent(server: PageServer) -> None:
    address = server.address("/secret").replace("http://", "http://user:password@")
    assert "password" in refused(fetcher(server), address)


def test_neither_proxies_nor_cookies_of_the_host_are_used(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert asyncio.run(fetcher(server).text(server.address("/secret"))) == SECRET


@pytest.mark.parametrize("path", ["/huge", "/endless"])
def test_a_page_without_an_end_is_left(server: PageServer, path: str) -> None:
    ENDED.clear()
    assert "more than 1000000 bytes" in refused(fetcher(server), server.address(path))
    assert ENDED.wait(10)


def test_a_page_that_drips_is_left(server: PageServer) -> None:
    with pytest.raises(PageUnreachable, match=r"within 0\.3 s"):
        asyncio.run(fetcher(server, seconds=0.3).text(server.address("/slow")))


def test_a_zip_bomb_is_not_unpacked(server: PageServer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # It may unpack to 50 MB: much more than comes, and much less than it holds.
    assert "more than 50000000 bytes" in refused(fetcher(server, max_bytes=50 * MEGABYTE), server.address("/bomb"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
