"""The stand-in's HTTP server: `/v1/models` and `/v1/chat/completions`, a thread a connection."""

import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from include.core.errors import ModelError
from include.models.standin.chat import MODELS, complete

log = logging.getLogger(__name__)


class StandInServer(ThreadingHTTPServer):
    """Serves until it is shut down; port 0 takes a free one, to be read from `server_port`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: written apart, Nagle's algorithm and delayed acknowledgement cost 40 ms a call.
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/v1/models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "stand-in"} for name in MODELS]
            self._send(200, {"object": "list", "data": models})
        else:
            self._fail(404, f"{self.path}: not served here; there are /v1/models and /v1/chat/completions")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.rstrip("/") != "/v1/chat/completions":
            self._fail(404, f"{self.path}: not served here; there are /v1/models and /v1/chat/completions")
            return
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise ModelError("The body must be a JSON object.")
            completion = complete(request)
        except (ModelError, UnicodeDecodeError, json.JSONDecodeError) as error:
            self._fail(400, str(error))
        except Exception as error:
            log.exception("A request failed")
            self._fail(500, f"{type(error).__name__}: {error}")
        else:
            self._send(200, completion)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug(format, *args)

    def _fail(self, status: int, message: str) -> None:
        self._send(
            status, {"error": {"message": message, "type": "invalid_request_error", "code": None, "param": None}}
        )

    def _send(self, status: int, payload: dict[str, Any]) -> None:
        body = json.dumps(payload, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
