"""A model server that passes everything on to another one, fails a fixed share of the tries, and can be slow."""

import hashlib
import time
import urllib.request
from collections import Counter

from skillopt_airflow.core.config.sampling import MODEL_ATTEMPTS
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, failure

SHARES = {"busy": 0.20, "broken": 0.10, "hang": 0.05, "garbage": 0.05}
GARBAGE = (b"<html>502 Bad Gateway</html>", b'{"choices": 7}', b'{"choices": [{"index": 0, "mess')


class FaultyModel(ScriptedProvider):
    """From `fails` on, which try of a request fails, and how, is a function of the request alone; the last never does.

    `hang` is how many seconds it sits on a request that it never answers, `delay` how many it takes to a good answer,
    which may change at any time.
    """

    def __init__(self, upstream: str, hang: float) -> None:
        super().__init__(self.answer_to)
        self.upstream = upstream
        self.hang = hang
        self.delay = 0.0
        self.fails = False
        self.tries: Counter[bytes] = Counter()
        self.answers: Counter[str] = Counter()
        """Good answers by model."""
        self.outcomes: Counter[str] = Counter()
        self.keys: set[str] = set()
        """Credentials that came with the requests."""

    @property
    def lost(self) -> float:
        """Share of the tries that were in vain."""
        return 1 - self.outcomes["answer"] / self.outcomes.total()

    def outcome(self, asked: Asked) -> str:
        with self.lock:
            self.tries[asked.raw] += 1
            number = self.tries[asked.raw]
        digest = hashlib.sha256(number.to_bytes(4, "big") + asked.raw).digest()
        drawn = int.from_bytes(digest[:4], "big") / 2**32
        chosen = "answer"
        for name, share in SHARES.items():
            if self.fails and number < MODEL_ATTEMPTS and 0 <= drawn < share:
                chosen = name
            drawn -= share
        with self.lock:
            self.outcomes[chosen] += 1
            self.answers[asked.body["model"]] += chosen == "answer"
        return chosen

    def answer_to(self, asked: Asked) -> Reply | None:
        if asked.method == "GET":
            return self.passed_on(asked)
        self.keys.add(asked.headers.get("authorization", ""))
        match self.outcome(asked):
            case "busy":
                return failure(429, "slow down", **{"retry-after": "0"})
            case "broken":
                return failure(500, "out of luck")
            case "hang":
                time.sleep(self.hang)
                return None
            case "garbage":
                return Reply(body=GARBAGE[len(asked.raw) % len(GARBAGE)])
        time.sleep(self.delay)
        return self.passed_on(asked)

    def passed_on(self, asked: Asked) -> Reply:
        address = self.upstream + asked.path.removeprefix("/v1")
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address, data=asked.raw or None, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Reply(body=answer.read())
