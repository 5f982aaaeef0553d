"""A gateway under test, with what stands at either side of it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.upstream import Upstream
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion

KEY = "sk-secret-0123456789"
MODEL = "stand-in-target"
PATHS = {"openai-chat": "/v1/chat/completions", "openai": "/v1/responses", "anthropic": "/v1/messages"}
PATH = PATHS["openai-chat"]


@dataclass
class Rig:
    client: httpx.Client
    provider: ScriptedProvider
    calls: list[ModelCall]
    socket_path: Path

    def post(self, path: str = PATH, **body: Any) -> httpx.Response:
        return self.client.post(path, json={"model": MODEL} | body, headers={"authorization": "Bearer none"})

    def connect(self) -> socket.socket:
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(30)
        raw.connect(str(self.socket_path))
        return raw

    def until_called(self, number: int = 1) -> None:
        """Wait until the gateway has reported this many calls."""
        deadline = time.monotonic() + 20
        while len(self.calls) < number and time.monotonic() < deadline:
            time.sleep(0.01)

    def outcomes(self) -> list[tuple[int, int]]:
        return [(call.http_status, call.attempts) for call in self.calls]


@contextmanager
def rigs(folder: Path) -> Iterator[Callable[..., Rig]]:
    """Makes gateways, each with a scripted provider behind it."""
    with ExitStack() as stack:

        def make(answer: Callable[[Asked], Reply], dialect: Any = "openai-chat", **options: Any) -> Rig:
            provider = stack.enter_context(ScriptedProvider(answer))
            base_url = options.pop("base_url", provider.base_url)
            upstream = upstream_at(base_url, dialect, **options.pop("upstream", {}))
            calls: list[ModelCall] = []
            path = folder / f"{options.pop('name', 'model')}.sock"
            settings = {"max_attempts": 3, "call_timeout": 5.0} | options
            stack.enter_context(ModelGateway(upstream, path, stage="rollout", on_call=calls.append, **settings))
            transport = httpx.HTTPTransport(uds=str(path))
            client = stack.enter_context(httpx.Client(transport=transport, base_url="http://gateway", timeout=30))
            return Rig(client, provider, calls, path)

        yield make


def answer(asked: Asked) -> Reply:
    return completion("Eiffel")


class Hanging:
    """An answer that comes when it is released, if `hangs` says so of the request."""

    def __init__(self, hangs: Callable[[Asked], bool] = lambda asked: True) -> None:
        self.asked, self._released, self._hangs = threading.Event(), threading.Event(), hangs

    def __call__(self, asked: Asked) -> Reply:
        self.asked.set()
        if self._hangs(asked):
            self._released.wait(30)
        return answer(asked)

    def release(self) -> None:
        self._released.set()


def upstream_at(base_url: str, dialect: Any = "openai-chat", **fields: Any) -> Upstream:
    auth = "x-api-key" if dialect == "anthropic" else "bearer"
    given = {"dialect": dialect, "base_url": base_url, "model": MODEL, "api_key": SecretStr(KEY), "auth": auth}
    return Upstream.model_validate(given | fields)


def request_bytes(path: str = PATH, **body: Any) -> bytes:
    content = json.dumps({"model": MODEL} | body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
