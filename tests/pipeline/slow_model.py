"""A model server that passes everything on to another one, slowly enough to be interrupted."""

import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JSON = "application/json"


class PassingOn(BaseHTTPRequestHandler):
    """Answers what the server's `upstream` answers."""

    server: "SlowModel"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.pass_on(None)

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: object) -> None:
        """Keep the test's output free of access lines."""

    def answer(self, body: bytes) -> None:
        time.sleep(self.server.delay)
        self.pass_on(body)

    def pass_on(self, body: bytes | None) -> None:
        address = self.server.upstream + self.path.removeprefix("/v1")
        request = urllib.request.Request(address, data=body, headers={"Content-Type": JSON})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.send(200, answer.read())

    def send(self, status: int, content: bytes, **headers: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            # Whoever asked was killed, or has given up.
            self.close_connection = True


class SlowModel(ThreadingHTTPServer):
    """`delay` is how many seconds it takes to a call before it asks `upstream`; it may change at any time."""

    request_queue_size = 128

    def __init__(self, upstream: str, delay: float = 0.0, handler: type[PassingOn] = PassingOn) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.upstream = upstream
        self.delay = delay

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"
