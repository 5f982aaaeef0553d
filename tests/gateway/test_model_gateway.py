import json
import logging
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime

import pytest

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.gateway import app as surface
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream
from tests.gateway import dialects
from tests.gateway.gateway_rig import KEY, MODEL, PATH, PATHS, Hanging, answer, request_bytes, upstream_at
from tests.gateway.scripted_provider import ANSWERS, Asked, Reply, events, failure

UNREACHABLE = "http://127.0.0.1:9/v1"


def test_a_call_goes_through_with_the_upstreams_credentials(rig):
    one = rig(answer)
    before = datetime.now(UTC).timestamp()

    response = one.post(messages=[])

    assert response.json()["choices"][0]["message"]["content"] == "Eiffel"
    assert one.provider.requests[0].path == PATH
    assert one.provider.requests[0].body == {"model": MODEL, "messages": [], "max_completion_tokens": DEFAULT_LIMIT}
    assert one.provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    (call,) = one.calls
    assert (call.role, call.stage, call.model, call.http_status, call.attempts) == ("target", "rollout", MODEL, 200, 1)
    assert (call.prompt_tokens, call.completion_tokens) == (11, 3)
    assert before <= call.started <= datetime.now(UTC).timestamp()


@pytest.mark.parametrize("dialect", PATHS)
def test_each_dialect_has_its_path(rig, dialect):
    one = rig(lambda asked: ANSWERS[dialect]("Eiffel"), dialect=dialect)

    assert one.post(PATHS[dialect]).status_code == 200

    assert one.provider.requests[0].path == PATHS[dialect]
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(11, 3)]
    others = [path for name, path in PATHS.items() if name != dialect]
    assert [one.post(path).status_code for path in others] == [403, 403]


def test_only_the_configured_model_and_path_are_allowed(rig):
    one = rig(answer)
    body = json.dumps({"model": MODEL}).encode()

    refused = [
        one.client.get("/v1/models"),
        one.client.get(PATH),
        one.client.head("/"),
        one.client.delete(PATH),
        one.client.options(PATH),
        one.post("/v1/embeddings"),
        one.post("/v1/chat/completions/"),
        one.post("/v1//chat/completions"),
        one.post("/v1/chat/completions/../files"),
        one.post("/v1/chat%2Fcompletions"),
        one.post(f"{PATH}?model=gpt-much-dearer"),
        one.client.request("POST", PATH, content=body, extensions={"target": b"http://127.0.0.1:9" + PATH.encode()}),
        one.post(model="gpt-much-dearer"),
        one.post(model=None),
        one.post(model=[MODEL]),
    ]

    assert [response.status_code for response in refused] == [403] * len(refused)
    assert "gpt-much-dearer" in refused[12].json()["error"]["message"]
    assert {response.headers["x-should-retry"] for response in refused} == {"false"}
    assert one.provider.requests == []
    assert one.calls == []


def test_the_command_line_clients_beta_query_is_allowed_and_counting_tokens_is_not_there(rig):
    one = rig(lambda asked: ANSWERS["anthropic"]("Eiffel"), dialect="anthropic")

    assert one.post("/v1/messages?beta=true").status_code == 200
    assert one.post("/v1/messages?beta=true&x=1").status_code == 403
    assert one.post("/v1/messages/count_tokens?beta=true").status_code == 404
    assert [asked.path for asked in one.provider.requests] == ["/v1/messages"]


def test_what_is_no_json_object_is_refused(rig):
    one = rig(answer)
    for body in (b"", b"\xff\xfe", b"[" * 100_000, b'["model"]'):
        assert one.client.post(PATH, content=body).status_code == 400
    assert one.post().status_code == 200


def test_a_name_that_is_there_twice_leaves_only_as_it_was_checked(rig):
    one = rig(answer)
    body = b'{"model": "gpt-much-dearer", "model": "stand-in-target"}'

    assert one.client.post(PATH, content=body).status_code == 200
    assert one.client.post(PATH, content=b'{"model": "stand-in-target", "model": "x"}').status_code == 403
    assert [asked.raw.count(b'"model"') for asked in one.provider.requests] == [1]


def test_a_request_over_its_size_is_refused(rig, monkeypatch):
    monkeypatch.setattr(surface, "MAX_REQUEST_BYTES", 1000)
    one = rig(answer)

    assert one.post(messages=[{"role": "user", "content": "x" * 1000}]).status_code == 413
    assert one.client.post(PATH, content=(b"x" * 100 for _ in range(100))).status_code == 413
    assert one.post(messages=[{"role": "user", "content": "x" * 850}]).status_code == 200
    assert len(one.provider.requests) == 1


def test_a_request_of_very_many_parts_is_refused_before_it_is_read(rig, monkeypatch):
    def unread(body):
        raise AssertionError("it was parsed")

    one = rig(answer)
    with monkeypatch.context() as patched:
        patched.setattr(surface, "from_json", unread)
        for part in (b"[]", b"{}", b"1"):
            body = b'{"a":[' + b",".join([part] * 600_000) + b"]}"
            response = one.client.post(PATH, content=body)
            assert response.status_code == 413
            assert "500000" in response.json()["error"]["message"]
    assert one.provider.requests == []
    assert one.post(messages=[{"role": "user", "content": "code[0], " * 100_000}] * 2).status_code == 200
    assert one.post(messages=[{"role": "user", "content": "A" * 20_000_000}]).status_code == 200


def test_a_large_request_waits_for_room_beside_others_and_a_small_one_does_not(rig, monkeypatch):
    monkeypatch.setattr(surface, "SMALL_BYTES", 500)
    monkeypatch.setattr(surface, "MAX_HELD_BYTES", 1500)
    hang = Hanging()
    one = rig(hang, max_attempts=1, call_timeout=60.0)
    with ThreadPoolExecutor(4) as clients:
        first = clients.submit(one.post, messages=[{"role": "user", "content": "x" * 850}])
        assert hang.asked.wait(30)
        others = [clients.submit(one.post, messages=[{"role": "user", "content": "x" * 850}]) for _ in range(2)]
        assert not wait(others, timeout=1).done
        assert len(one.provider.requests) == 1
        small = clients.submit(one.post)
        while len(one.provider.requests) < 2:
            assert not wait([small, *others], timeout=0.01).done
        hang.release()
    assert [sent.result().status_code for sent in (first, small, *others)] == [200] * 4


@pytest.mark.parametrize("leaves", [True, False])
def test_a_request_has_room_until_its_stream_ends_or_its_client_leaves(rig, monkeypatch, leaves):
    monkeypatch.setattr(surface, "SMALL_BYTES", 500)
    monkeypatch.setattr(surface, "MAX_HELD_BYTES", 1500)
    release = threading.Event()

    def slow_stream(asked: Asked) -> Reply:
        def chunks():
            yield from events({"choices": []})
            release.wait(30)
            yield from events({"choices": []})

        streams = asked.body.get("stream")
        return Reply(headers={"content-type": "text/event-stream"}, chunks=chunks()) if streams else answer(asked)

    one = rig(slow_stream, max_attempts=1, call_timeout=60.0)
    with ThreadPoolExecutor(1) as clients, one.connect() as raw:
        raw.sendall(request_bytes(stream=True, messages=[{"role": "user", "content": "x" * 850}]))
        assert b"200 OK" in raw.recv(1000)
        other = clients.submit(one.post, messages=[{"role": "user", "content": "x" * 850}])
        assert not wait([other], timeout=0.5).done
        if leaves:
            raw.close()
            assert other.result(30).status_code == 200
        release.set()
        assert other.result(30).status_code == 200


def test_the_calls_of_a_budget_are_never_passed(rig):
    one = rig(lambda asked: failure(500) if asked.number == 1 else answer(asked), allowance=RemainingBudget(calls=2))

    responses = [one.post() for _ in range(4)]

    assert [response.status_code for response in responses] == [200, 200, 402, 402]
    error = responses[2].json()["error"]
    assert (error["code"], "budget.max_calls" in error["message"]) == ("budget", True)
    assert one.outcomes() == [(200, 2), (200, 1)]
    assert len(one.provider.requests) == 3


def test_who_leaves_before_the_answer_pays_for_about_what_was_asked_for(rig):
    hang = Hanging()
    one = rig(hang, allowance=RemainingBudget(tokens=1000))
    with one.connect() as raw:
        raw.sendall(request_bytes(messages=[{"role": "user", "content": "x" * 4000}], max_tokens=50))
        assert hang.asked.wait(30)
    one.until_called()

    assert one.post().status_code == 402
    hang.release()
    (call,) = one.calls
    assert 1000 < call.prompt_tokens < 1050
    assert (call.completion_tokens, call.http_status) == (50, 0)


def test_who_leaves_without_a_limit_pays_for_the_runs(rig):
    hang = Hanging()
    one = rig(hang, allowance=RemainingBudget(tokens=1000), max_tokens=700)
    for number in (1, 2):
        with one.connect() as raw:
            raw.sendall(request_bytes(messages=[{"role": "user", "content": "x"}]))
            while len(one.provider.requests) < number:
                time.sleep(0.01)
        one.until_called(number)

    assert one.post().status_code == 402
    hang.release()
    assert [asked.body["max_completion_tokens"] for asked in one.provider.requests] == [700, 700]
    assert [call.completion_tokens for call in one.calls] == [700, 700]


def test_who_leaves_between_two_tries_pays_for_nothing(rig):
    asked_for = threading.Event()

    def broken(asked: Asked) -> Reply:
        asked_for.set()
        return failure(500, **{"retry-after": "20"})

    one = rig(broken, allowance=RemainingBudget(tokens=1000), call_timeout=20.0)
    with one.connect() as raw:
        raw.sendall(request_bytes(messages=[{"role": "user", "content": "x" * 4000}], max_tokens=5000))
        assert asked_for.wait(30)
        # The answer of the first try is on its way, and the second one is 20 seconds off.
        time.sleep(1.0)
    one.until_called()

    (call,) = one.calls
    assert (call.attempts, call.prompt_tokens, call.completion_tokens) == (1, 0, 0)


def test_a_call_that_failed_costs_no_tokens(rig):
    one = rig(lambda asked: failure(400), allowance=RemainingBudget(tokens=1000))
    assert [
        one.post(messages=[{"role": "user", "content": "x" * 8000}], max_tokens=5000).status_code for _ in range(2)
    ] == [400, 400]
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(0, 0)] * 2


def test_the_key_is_in_no_answer_and_no_log(rig, caplog, capfd):
    fallback_key = f"{KEY}-other"
    fallback = upstream_at(UNREACHABLE, api_key=fallback_key)
    with caplog.at_level(logging.DEBUG):
        one = rig(lambda asked: failure(401, f"wrong key {KEY} or {fallback_key}"), upstream={"fallbacks": (fallback,)})
        response = one.post()

    assert response.json()["error"]["message"] == "wrong key *** or ***"
    said = caplog.text + "".join(capfd.readouterr())
    assert KEY not in said
    assert fallback_key not in said


def test_the_token_of_an_identity_is_in_no_answer(rig, provider, monkeypatch):
    token = "entra-token-0123456789"
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", provider(dialects.instance_metadata(token)).address)
    identity = {"api_key": "", "identity": AzureIdentity(kind="managed_identity")}
    one = rig(lambda asked: failure(401, f"wrong {asked.headers['authorization']}"), upstream=identity)
    assert one.post().json()["error"]["message"] == "wrong Bearer ***"


def test_the_key_is_in_no_type_of_an_answer(rig):
    one = rig(lambda asked: failure(401, **{"content-type": f"application/json; key={KEY}"}))
    assert one.post().headers["content-type"] == "application/json; key=***"


def test_refusals_are_logged_some_times_without_what_the_client_sent_along(rig, caplog):
    one = rig(answer)
    for _ in range(surface.MAX_LOGGED_REFUSALS + 30):
        one.client.post(
            "/v1/files?key=secret-query", json={"a": "secret-body"}, headers={"authorization": "secret-header"}
        )
    one.post(model="x" * 5000)

    refusals = [record.getMessage() for record in caplog.records if "Refused" in record.getMessage()]
    assert len(refusals) == surface.MAX_LOGGED_REFUSALS
    assert "/v1/files" in refusals[0]
    assert "secret" not in caplog.text


def test_any_user_may_connect_and_the_socket_is_gone_afterwards(tmp_path):
    path = tmp_path / "model.sock"
    with ModelGateway(upstream_at(UNREACHABLE), path, stage="test", max_attempts=1, call_timeout=1, on_call=print):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert not path.exists()


UNMADE = Upstream(conn_id="c", dialect="openai-chat", base_url="", model="m", provider="litellm", arguments='{"x": 1}')


@pytest.mark.parametrize(
    ("upstream", "name", "words"),
    [(upstream_at(UNREACHABLE), "x" * 120, "cannot listen"), (UNMADE, "s", r"connection c: TypeError: .*'x'")],
)
def test_a_gateway_that_cannot_start_is_explained(tmp_path, upstream, name, words):
    gateway = ModelGateway(upstream, tmp_path / name, stage="test", max_attempts=1, call_timeout=1, on_call=print)
    with pytest.raises(SandboxError, match=words), gateway:
        pass
