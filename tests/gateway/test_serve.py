import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.gateway.backends import export_upstream
from skillopt_airflow.gateway.remaining_budget import ENDED
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.program import open_forwarder
from tests.gateway.gateway_rig import KEY, MODEL, PATH, Hanging, upstream_at
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion, failure
from tests.store.conftest import free_port

PROJECT = Path(__file__).resolve().parents[2]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program; it listens when this returns, and as long as its input is open if it talks."""
    with ExitStack() as stack:

        def make(upstream: Upstream, listen: str, talks: bool = False, **settings: Any) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "skillopt_airflow.gateway.serve", "--listen", listen]
            environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "include")}
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(document(upstream, **settings) + "\n" * talks)
            process.stdin.flush()
            if not talks:
                process.stdin.close()
            assert process.stderr is not None
            assert process.stderr.readline() == "listening\n"
            return process

        yield make


def document(upstream: Upstream, **settings: Any) -> str:
    given = {"stage": "rollout", "max_attempts": 3, "call_timeout": 20.0} | settings
    return json.dumps({"upstream": export_upstream(upstream)} | given)


def unix_client(path: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://gateway", timeout=30)


def post(client: httpx.Client) -> httpx.Response:
    return client.post(PATH, json={"model": MODEL})


def answer(asked: Asked) -> Reply:
    return failure(429, **{"retry-after": "0"}) if asked.number == 1 else completion("Eiffel")


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["port", "socket"])
def test_it_serves_and_tells_its_calls(start, tmp_path, where):
    path, port = tmp_path / "model.sock", free_port()
    with ScriptedProvider(answer) as provider:
        process = start(
            upstream_at(provider.base_url), f"unix:{path}" if where == "socket" else f"127.0.0.1:{port}", stage="test"
        )
        client = unix_client(path) if where == "socket" else httpx.Client(base_url=f"http://127.0.0.1:{port}")
        with client:
            assert post(client).json()["choices"][0]["message"]["content"] == "Eiffel"
            assert client.get("/v1/models").status_code == 403
        assert process.stdout is not None
        call = ModelCall.model_validate_json(process.stdout.readline())
        assert (call.stage, call.http_status, call.attempts, call.prompt_tokens) == ("test", 200, 2, 11)
        assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
        process.terminate()
        assert process.wait(30) == 0
    assert not path.exists()
    assert process.stderr is not None
    assert KEY not in process.stdout.read() + process.stderr.read()


@pytest.mark.nightly
def test_a_restart_costs_at_most_the_calls_in_flight(start, tmp_path):
    """As a container sees it: through the forwarder, by one path."""
    path = tmp_path / "model.sock"
    first_hangs = Hanging(lambda asked: asked.number == 1)

    async def scene(upstream: Upstream) -> None:
        process = start(upstream, f"unix:{path}")
        async with open_forwarder(str(path)) as base_url, httpx.AsyncClient(base_url=base_url, timeout=30) as client:
            in_flight = asyncio.ensure_future(client.post(PATH, json={"model": MODEL}))
            assert await asyncio.to_thread(first_hangs.asked.wait, 30)
            process.send_signal(signal.SIGKILL)
            process.wait()
            with pytest.raises(httpx.TransportError):
                await in_flight
            assert path.exists()

            start(upstream, f"unix:{path}")
            responses = [await client.post(PATH, json={"model": MODEL}) for _ in range(3)]
            assert [response.status_code for response in responses] == [200] * 3

    with ScriptedProvider(first_hangs) as provider:
        asyncio.run(scene(upstream_at(provider.base_url)))
        first_hangs.release()


def test_the_settings_arrive(start, tmp_path):
    path = tmp_path / "model.sock"
    with ScriptedProvider(lambda asked: failure(500)) as provider, unix_client(path) as client:
        start(upstream_at(provider.base_url, "anthropic"), f"unix:{path}", max_attempts=1, allowance={"calls": 1})
        statuses = [client.post(path, json={"model": MODEL}).status_code for path in [PATH, *["/v1/messages"] * 2]]
        assert statuses == [403, 500, 402]
        assert len(provider.requests) == 1


@pytest.mark.nightly
def test_it_goes_through_the_proxy_of_whoever_started_it(start, tmp_path):
    path = tmp_path / "model.sock"
    with ScriptedProvider(lambda asked: completion("Eiffel")) as proxy, unix_client(path) as client:
        proxies = {"http_proxy": proxy.base_url.removesuffix("/v1")}
        start(upstream_at("http://model.invalid/v1"), f"unix:{path}", proxies=proxies)
        assert post(client).json()["choices"][0]["message"]["content"] == "Eiffel"
        assert proxy.requests[0].headers["host"] == "model.invalid"


@pytest.mark.nightly
def test_one_that_was_killed_is_not_restarted_with_its_part_of_the_budget(start, tmp_path):
    path = tmp_path / "model.sock"
    with ScriptedProvider(lambda asked: completion("x")) as provider, unix_client(path) as client:
        upstream = upstream_at(provider.base_url)
        first = start(upstream, f"unix:{path}", talks=True, allowance={"calls": 9})
        assert post(client).status_code == 200
        first.kill()
        assert ENDED.decode() not in first.stdout.read()
        with pytest.raises(AssertionError):
            start(upstream, f"unix:{path}", talks=True, allowance={"calls": 9})
        # Without a budget it goes on.
        second = start(upstream, f"unix:{path}", talks=True)
        second.terminate()
        assert second.stdout.read().splitlines() == [ENDED.decode()]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("listen", "content", "reason"),
    [
        ("unix:{path}", '{"upstream": {"api_key": "sk-secret"}, "stage": 3}', "upstream.dialect: Field required"),
        ("unix:{path}", '{"secret": "sk-secret"', "Invalid JSON"),
        ("8080", "{}", "expected HOST:PORT or unix:PATH"),
        ("unix:{path}/not/there", None, "cannot listen"),
        ("256.0.0.1:80", None, "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_told_without_secrets(tmp_path, listen, content, reason):
    config = tmp_path / "config.json"
    config.write_text(document(upstream_at("http://127.0.0.1:9/v1")) if content is None else content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "skillopt_airflow.gateway.serve"),
            *("--listen", listen.format(path=tmp_path / "s"), "--config", str(config)),
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
