"""Runs in the image of the harness claude_code: loads a skill with the real CLI, and a loopback stub as its model.

Reads `{"skill": <SKILL.md>, "files": {<path>: <text>}}` from the variable GIVEN. Prints `{"made": [<names in
/tmp/made>], "asked": <the requests' text>}`.
"""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
MESSAGE |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


class Model(BaseHTTPRequestHandler):
    """Answers "done" to everything."""

    asked: list[str] = []  # noqa: RUF012 - one server per process

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers.get("content-length", 0))).decode())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in EVENTS:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        pass


given = json.loads(os.environ["GIVEN"])
home, made = Path("/tmp/home"), Path("/tmp/made")
for path, text in {**given["files"], str(home / ".claude/skills/bench/SKILL.md"): given["skill"]}.items():
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
made.mkdir()
server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
variables = {"HOME": str(home), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
variables |= {"ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
# One argument of the user and none: both take the place of `$1` and `$ARGUMENTS`.
for words in ("/bench", "/bench do the task"):
    done = subprocess.run(
        ["claude", "--print", "--model", "m", "--allowedTools=Bash,Read", words],
        cwd=home,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
print(json.dumps({"made": sorted(path.name for path in made.iterdir()), "asked": "\n".join(Model.asked)}))
