"""A model server that passes everything on to another one, and fails a fixed share of the tries."""

import hashlib
import json
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHARES = {"busy": 0.20, "broken": 0.10, "hang": 0.05, "garbage": 0.05}
GARBAGE = (b"<html>502 Bad Gateway</html>", b'{"choices": 7}', b'{"choices": [{"index": 0, "mess')
JSON = "application/json"


class FaultyModel(ThreadingHTTPServer):
    """Which try of a request fails, and how, is a function of the request alone.

    `hang` is how many seconds it sits on a request that it never answers.
    """

    request_queue_size = 128

    def __init__(self, upstream: str, hang: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.hang = hang
        self.tries: Counter[bytes] = Counter()
        self.answers: Counter[str] = Counter()
        """Good answers by model."""
        self.outcomes: Counter[str] = Counter()
        self.keys: set[str] = set()
        """Credentials that came with the requests."""
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def lost(self) -> float:
        """Share of the tries that were in vain."""
        return 1 - self.outcomes["answer"] / self.outcomes.total()

    def outcome(self, body: bytes) -> str:
        with self._lock:
            self.tries[body] += 1
            number = self.tries[body]
        digest = hashlib.sha256(number.to_bytes(4, "big") + body).digest()
        drawn = int.from_bytes(digest[:4], "big") / 2**32
        chosen = "answer"
        for name, share in SHARES.items():
            if 0 <= drawn < share:
                chosen = name
            drawn -= share
        with self._lock:
            self.outcomes[chosen] += 1
            self.answers[json.loads(body)["model"]] += chosen == "answer"
        return chosen


class _Handler(BaseHTTPRequestHandler):
    server: FaultyModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._send(200, b'{"object": "list", "data": []}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys |= {self.headers.get("Authorization", "")}
        outcome = self.server.outcome(body)
        if outcome == "busy":
            self._send(429, b'{"error": {"message": "slow down"}}')
        elif outcome == "broken":
            self._send(500, b'{"error": {"message": "out of luck"}}')
        elif outcome == "hang":
            time.sleep(self.server.hang)
            self.close_connection = True
        elif outcome == "garbage":
            self._send(200, GARBAGE[len(body) % len(GARBAGE)])
        else:
            self._pass_on(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output free of access lines."""

    def _pass_on(self, body: bytes) -> None:
        address = self.server.upstream + self.path.removeprefix("/v1")
        request = urllib.request.Request(address, data=body, headers={"Content-Type": JSON})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self._send(200, answer.read())

    def _send(self, status: int, content: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()
        except OSError:
            # Whoever asked has given up.
            self.close_connection = True
