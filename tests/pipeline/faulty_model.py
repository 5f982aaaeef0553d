"""A model server that passes everything on to another one, and fails a fixed share of the tries."""

import hashlib
import json
import threading
import time
from collections import Counter

from tests.pipeline.slow_model import PassingOn, SlowModel

SHARES = {"busy": 0.20, "broken": 0.10, "hang": 0.05, "garbage": 0.05}
GARBAGE = (b"<html>502 Bad Gateway</html>", b'{"choices": 7}', b'{"choices": [{"index": 0, "mess')


class FaultyModel(SlowModel):
    """Which try of a request fails, and how, is a function of the request alone.

    `hang` is how many seconds it sits on a request that it never answers.
    """

    def __init__(self, upstream: str, hang: float) -> None:
        super().__init__(upstream, handler=_Failing)
        self.hang = hang
        self.tries: Counter[bytes] = Counter()
        self.answers: Counter[str] = Counter()
        """Good answers by model."""
        self.outcomes: Counter[str] = Counter()
        self.keys: set[str] = set()
        """Credentials that came with the requests."""
        self._lock = threading.Lock()

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


class _Failing(PassingOn):
    server: FaultyModel

    def answer(self, body: bytes) -> None:
        self.server.keys |= {self.headers.get("Authorization", "")}
        outcome = self.server.outcome(body)
        if outcome == "busy":
            self.send(429, b'{"error": {"message": "slow down"}}', **{"Retry-After": "0"})
        elif outcome == "broken":
            self.send(500, b'{"error": {"message": "out of luck"}}')
        elif outcome == "hang":
            time.sleep(self.server.hang)
            self.close_connection = True
        elif outcome == "garbage":
            self.send(200, GARBAGE[len(body) % len(GARBAGE)])
        else:
            self.pass_on(body)
