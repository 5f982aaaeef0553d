"""The world's model server: limited slots, and a random latency per call."""

import math
import threading
import time
from collections import Counter
from statistics import NormalDist
from typing import Any

from bench.world_model import stand_in
from local.standin.conversation import Answering, Conversation, Reply
from local.standin.economy import World
from local.standin.server import StandInServer
from skillopt_airflow.core.values.types import canonical_json, sha256

SLOTS = 24
SIGMA = 0.5
"""Standard deviation of the logarithm of the latency: 1 of 20 calls takes twice the mean."""


class WorldServer(StandInServer):
    """Answers chat completions; calls beyond the slots wait in a queue."""

    def __init__(self, world: World, mean_seconds: float, slots: int = SLOTS) -> None:
        super().__init__("127.0.0.1", 0, stand_in(world))
        self.busy_seconds = 0.0
        """Total latency of all calls."""
        self.most_at_once = 0
        """Maximum number of concurrent calls."""
        self._world, self._mean = world, mean_seconds
        self._slots = threading.Semaphore(slots)
        self._asked: Counter[str] = Counter()
        self._at_once = 0
        self._lock = threading.Lock()

    def latency(self, name: str) -> float:
        share = self._world.fraction(name, "latency")
        # inv_cdf is undefined at 0 and 1.
        normal = NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))
        return self._mean * math.exp(SIGMA * normal - SIGMA**2 / 2)

    def answering(self, request: dict[str, Any]) -> Answering:
        digest = sha256(canonical_json(request))
        with self._lock:
            # Each equal request is another sample.
            self._asked[digest] += 1
            sample = self._asked[digest]

        def answer(conversation: Conversation) -> Reply:
            reply = self.stand_in.reply(conversation, sample)
            with self._slots:
                self._spend(self.latency(f"{digest} {sample}"))
            return reply

        return answer

    def _spend(self, seconds: float) -> None:
        with self._lock:
            self.busy_seconds += seconds
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(seconds)
        with self._lock:
            self._at_once -= 1
