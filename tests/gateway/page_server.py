"""Real servers of pages, a path each, behind names that lead where a test says."""

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from local.served import served
from skillopt_airflow.gateway.page_fetcher import PageFetcher
from skillopt_airflow.gateway.public_address import why_refused

Served = Callable[[BaseHTTPRequestHandler], None]


def page(text: str | bytes, media_type: str = "text/html; charset=utf-8", status: int = 200, **headers: str) -> Served:
    """What serves a whole page; `_` in a header's name stands for `-`."""

    def serve(request: BaseHTTPRequestHandler) -> None:
        body = text if isinstance(text, bytes) else text.encode()
        request.send_response(status)
        named = {"content-type": media_type, "content-length": str(len(body))} | headers
        for name, value in named.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return serve


def leading_to(address: str) -> Served:
    return page("moved", status=302, location=address)


@dataclass
class PageServer:
    """The server, and who asked it for what."""

    pages: Mapping[str, Served]
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Host and path of every request."""
    port: int = 0

    def address(self, path: str, host: str = "news.example") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def page_server(pages: Mapping[str, Served], tls: ssl.SSLContext | None = None) -> Iterator[PageServer]:
    serving = PageServer(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            serving.asked.append((self.headers["host"], self.path))
            # Whoever asked may be gone: that is what is tested.
            with suppress(OSError):
                serving.pages[self.path](self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    serving.port = server.server_address[1]
    with served(server):
        yield serving


@dataclass
class Names:
    """A resolver whose names lead to one address after the other, the last one from then on; all else to loopback."""

    leads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        addresses = self.leads.get(host, ["127.0.0.1"])
        self.asked.append(host)
        return [addresses[min(self.asked.count(host), len(addresses)) - 1]]


def fetcher(server: PageServer, names: Names | None = None, **limits: Any) -> PageFetcher:
    """A fetcher that takes this server, and no other, for one of the web."""

    def refuse(address: str, port: int) -> str:
        if port != server.port:
            return why_refused(address, port)
        return "" if address == "127.0.0.1" else why_refused(address, 80)

    given = {"seconds": 5.0, "max_bytes": 1_000_000, "characters": 2000} | limits
    return PageFetcher(**given, resolve=names or Names(), refuse=refuse)
