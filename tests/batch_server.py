"""The stand-in with a batch API: files go in, every line is answered at once, and the job is complete when it is first
looked at.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local.standin import chat_wire
from local.standin.server import Handler, StandInServer
from skillopt_airflow.core.errors import ModelError

Document = dict[str, Any]
Answer = tuple[int, str, bytes]
"""Status, media type and body."""

JSON = "application/json"
PATHS = ("/v1/files", "/v1/batches")
LINES = "application/jsonl"


@dataclass
class Batches:
    """Uploaded files and the jobs on them, as long as the server lives; usable from many threads."""

    respond: Callable[[Document], Document]
    """Answers one chat completion."""
    files: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, Document] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, content_type: str, body: bytes) -> Answer | None:
        """Return the answer to a request; None if it is none for this API."""
        if not path.startswith(PATHS):
            return None
        with self._lock:
            _, _, kind, name, part, *_ = [*path.split("/"), "", ""]
            if (method, kind, name) == ("POST", "files", ""):
                return self._told(self._upload(content_type, body))
            if (method, kind, name) == ("POST", "batches", ""):
                return self._told(self._begin(json.loads(body)))
            if (method, kind, name) == ("GET", "batches", ""):
                return self._told({"object": "list", "data": list(self.jobs.values()), "has_more": False})
            if kind == "files" and part == "content" and name in self.files:
                return 200, LINES, self.files[name]
            if kind == "batches" and name in self.jobs:
                return self._told(self.jobs[name])
        return 404, JSON, json.dumps({"error": {"message": f"{path}: no such object", "code": None}}).encode()

    @staticmethod
    def _told(document: Document) -> Answer:
        return 200, JSON, json.dumps(document).encode()

    def _upload(self, content_type: str, body: bytes) -> Document:
        content = _uploaded_file(content_type, body)
        return self._keep(content)

    def _keep(self, content: bytes) -> Document:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": round(time.time()),
            "filename": "batch.jsonl",
            "purpose": "batch",
            "status": "processed",
        }

    def _begin(self, asked: Document) -> Document:
        content = self.files.get(asked.get("input_file_id", ""))
        if content is None:
            raise ModelError("There is no such input file.")
        outcomes = [self._outcome(json.loads(line)) for line in content.splitlines()]
        good = [outcome for outcome in outcomes if outcome["response"]["status_code"] == 200]
        bad = [outcome for outcome in outcomes if outcome["response"]["status_code"] != 200]
        now, name = round(time.time()), f"batch-{len(self.jobs)}"
        self.jobs[name] = {
            "id": name,
            "object": "batch",
            "endpoint": asked.get("endpoint"),
            "input_file_id": asked["input_file_id"],
            "completion_window": asked.get("completion_window"),
            "metadata": asked.get("metadata"),
            "status": "completed",
            "created_at": now,
            "completed_at": now,
            "output_file_id": self._lines(good),
            "error_file_id": self._lines(bad),
            "request_counts": {"total": len(outcomes), "completed": len(good), "failed": len(bad)},
        }
        return self.jobs[name]

    def _lines(self, outcomes: list[Document]) -> str | None:
        if not outcomes:
            return None
        lines = "".join(json.dumps(outcome) + "\n" for outcome in outcomes)
        return str(self._keep(lines.encode())["id"])

    def _outcome(self, line: Mapping[str, Any]) -> Document:
        status, body = 200, {}
        try:
            body = self.respond(line["body"])
        except ModelError as error:
            status, body = 400, {"error": {"message": str(error), "code": "invalid_request"}}
        response = {"status_code": status, "request_id": "", "body": body}
        return {"id": "", "custom_id": line["custom_id"], "response": response, "error": None}


def _uploaded_file(content_type: str, body: bytes) -> bytes:
    """Return the part named file of a form."""
    found = re.search(r'boundary="?([^";]+)', content_type)
    if found is None:
        raise ModelError("A file is uploaded as multipart/form-data.")
    for part in body.split(b"--" + found[1].encode()):
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    raise ModelError("The form has no part named file.")


class _BatchHandler(Handler):
    server: "BatchServer"

    def do_GET(self) -> None:  # noqa: N802
        if not self._batched("GET", b""):
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802
        if not self.served.startswith(PATHS):
            super().do_POST()
            return
        try:
            self._batched("POST", self.rfile.read(int(self.headers.get("Content-Length", 0))))
        except (ModelError, ValueError) as error:
            self.fail(400, str(error))

    def _batched(self, method: str, body: bytes) -> bool:
        answer = self.server.batches.answer(method, self.served, self.headers.get("Content-Type", ""), body)
        if answer is not None:
            self.write(*answer)
        return answer is not None


class BatchServer(StandInServer):
    handler = _BatchHandler

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.batches = Batches(lambda request: chat_wire.complete(request, self.answering(request)))
