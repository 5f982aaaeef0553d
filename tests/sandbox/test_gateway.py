import json
import logging
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from include.core.errors import SandboxError
from include.core.types import ModelCall
from include.models.upstream import Upstream
from include.sandbox.gateway import ModelGateway
from tests.sandbox.scripted_provider import Asked, Reply, ScriptedProvider, completion, failure

KEY = "sk-secret-0123456789"
MODEL = "standin-target"
PATH = "/v1/chat/completions"


@dataclass
class Rig:
    client: httpx.Client
    provider: ScriptedProvider
    calls: list[ModelCall]
    socket_path: Path

    def post(self, path: str = PATH, **body: Any) -> httpx.Response:
        return self.client.post(path, json={"model": MODEL} | body, headers={"authorization": "Bearer none"})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:

        def make(answer: Callable[[Asked], Reply], dialect: Any = "openai-chat", **options: Any) -> Rig:
            provider = stack.enter_context(ScriptedProvider(answer))
            upstream = Upstream(
                dialect=dialect,
                base_url=options.pop("base_url", provider.base_url),
                model=MODEL,
                api_key=SecretStr(KEY),
            )
            calls: list[ModelCall] = []
            settings = {"max_attempts": 3, "call_timeout": 5.0} | options
            path = tmp_path / "model.sock"
            stack.enter_context(ModelGateway(upstream, path, stage="rollout", on_call=calls.append, **settings))
            transport = httpx.HTTPTransport(uds=str(path))
            client = stack.enter_context(httpx.Client(transport=transport, base_url="http://gateway", timeout=30))
            return Rig(client, provider, calls, path)

        yield make


def answer(asked: Asked) -> Reply:
    return completion("Eiffel")


def test_a_call_goes_through_with_the_upstreams_credentials(rig):
    one = rig(answer)

    response = one.post(messages=[])

    assert response.json()["choices"][0]["message"]["content"] == "Eiffel"
    assert one.provider.requests[0].path == PATH
    assert one.provider.requests[0].body == {"model": MODEL, "messages": []}
    assert one.provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    (call,) = one.calls
    assert (call.role, call.stage, call.model, call.http_status, call.attempts) == ("target", "rollout", MODEL, 200, 1)
    assert (call.prompt_tokens, call.completion_tokens) == (11, 3)


@pytest.mark.parametrize(
    ("dialect", "path", "header", "value"),
    [
        ("openai-chat", "/v1/chat/completions", "authorization", f"Bearer {KEY}"),
        ("openai", "/v1/responses", "authorization", f"Bearer {KEY}"),
        ("anthropic", "/v1/messages", "x-api-key", KEY),
    ],
)
def test_each_dialect_has_its_path_and_its_header(rig, dialect, path, header, value):
    one = rig(answer, dialect=dialect)

    assert one.post(path).status_code == 200

    assert one.provider.requests[0].path == path
    assert one.provider.requests[0].headers[header] == value


def test_only_the_configured_model_and_path_are_allowed(rig):
    one = rig(answer)

    refused = [
        one.client.get("/v1/models"),
        one.client.get(PATH),
        one.client.delete(PATH),
        one.post("/v1/embeddings"),
        one.post("/v1/chat/completions/../files"),
        one.post(model="gpt-much-dearer"),
        one.client.post(PATH, content=b"not json"),
        one.client.post(PATH, json=["model", MODEL]),
    ]

    assert [response.status_code for response in refused] == [403] * len(refused)
    assert "gpt-much-dearer" in refused[5].json()["error"]["message"]
    assert one.provider.requests == []
    assert one.calls == []


def test_passing_failures_are_asked_again(rig):
    replies = {1: failure(429, **{"retry-after": "0"}), 2: failure(503), 3: completion("Eiffel")}
    one = rig(lambda asked: replies[asked.number])

    assert one.post().status_code == 200

    assert [(call.http_status, call.attempts) for call in one.calls] == [(200, 3)]


def test_tries_are_bounded_and_the_last_answer_comes_through(rig):
    one = rig(lambda asked: failure(500, f"broken {asked.number}"), max_attempts=2)

    response = one.post()

    assert (response.status_code, response.json()["error"]["message"]) == (500, "broken 2")
    assert [(call.http_status, call.attempts) for call in one.calls] == [(500, 2)]


def test_a_wrong_request_is_not_asked_again(rig):
    one = rig(lambda asked: failure(400))
    assert one.post().status_code == 400
    assert len(one.provider.requests) == 1


def test_a_server_that_is_not_there_is_a_bad_gateway(rig):
    one = rig(answer, base_url="http://127.0.0.1:9/v1", max_attempts=1)

    response = one.post()

    assert response.status_code == 502
    assert "cannot be reached" in response.json()["error"]["message"]
    assert [(call.http_status, call.attempts) for call in one.calls] == [(0, 1)]


def test_a_server_that_hangs_is_a_gateway_timeout(rig):
    release = threading.Event()

    def hang(asked: Asked) -> Reply:
        release.wait(30)
        return answer(asked)

    one = rig(hang, max_attempts=1, call_timeout=0.2)
    response = one.post()
    release.set()

    assert response.status_code == 504
    assert one.calls[0].http_status == 0


def test_a_stream_passes_through_and_its_usage_counts(rig):
    events = [
        {"choices": [{"delta": {"content": "Eif"}}]},
        {"choices": [{"delta": {"content": "fel"}}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    one = rig(lambda asked: Reply(200, body.encode(), {"content-type": "text/event-stream"}))

    response = one.post(stream=True)

    assert response.text == body
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(7, 2)]


def test_the_key_is_in_no_answer_and_no_log(rig, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        one = rig(lambda asked: failure(401, f"wrong key {KEY}"))
        response = one.post()

    assert response.json()["error"]["message"] == "wrong key ***"
    assert KEY not in caplog.text
    assert KEY not in "".join(capfd.readouterr())


def test_a_client_that_dies_disturbs_nobody(rig):
    asked_once, release = threading.Event(), threading.Event()

    def first_hangs(asked: Asked) -> Reply:
        asked_once.set()
        if asked.number == 1:
            release.wait(30)
        return answer(asked)

    one = rig(first_hangs)
    body = json.dumps({"model": MODEL}).encode()
    with socket.socket(socket.AF_UNIX) as dying:
        dying.connect(str(one.socket_path))
        head = f"POST {PATH} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
        dying.sendall(head.encode() + body)
        assert asked_once.wait(30)

    assert one.post().status_code == 200
    release.set()


def test_any_user_may_connect_and_nothing_stays(rig, tmp_path):
    one = rig(answer)
    assert stat.S_IMODE(one.socket_path.stat().st_mode) == 0o666


def test_the_socket_is_gone_afterwards(tmp_path):
    upstream = Upstream(dialect="openai-chat", base_url="http://127.0.0.1:9/v1", model=MODEL, api_key=SecretStr(KEY))
    path = tmp_path / "model.sock"
    with ModelGateway(upstream, path, stage="test", max_attempts=1, call_timeout=1, on_call=print):
        assert path.exists()
    assert not path.exists()


def test_a_path_too_long_for_a_socket_is_explained(tmp_path):
    upstream = Upstream(dialect="openai-chat", base_url="http://127.0.0.1:9/v1", model=MODEL, api_key=SecretStr(KEY))
    gateway = ModelGateway(
        upstream, tmp_path / ("x" * 120), stage="test", max_attempts=1, call_timeout=1, on_call=print
    )
    with pytest.raises(SandboxError, match="cannot listen"), gateway:
        pass
