"""Six wrong settings on the real platform, as a user meets them: trigger, wait, read the failed task's log."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from local.environment import s3_url
from tests.gateway.foreign_server import ForeignServer, serving
from tests.pipeline.trained_run import DAG, SHORT, TrainedRun, create_connection
from tests.store.killing_proxy import KillingProxy, proxied

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

KEY = "sk-the-right-key-0000"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
NOWHERE = "http://127.0.0.1:9/v1"


class ReadOnlyArtifacts(KillingProxy):
    """An S3 server whose bucket of published skills may be read alone."""

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        if request.command != "PUT" or not request.path.startswith("/skillopt-artifacts/"):
            return super().forward(request)
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        request.send_response_only(403)
        request.send_header("Content-Type", "application/xml")
        request.send_header("Content-Length", str(len(DENIED)))
        request.end_headers()
        request.wfile.write(DENIED)
        return None


@dataclass(frozen=True)
class Wrong:
    """A setting, and what the user is to read."""

    server: ForeignServer
    sentence: str
    """The beginning of it."""
    advice: str
    task: str
    model: str = "some-model"
    key: str = KEY
    host: str = ""
    overrides: tuple[tuple[str, Any], ...] = ()


def target(name: str) -> str:
    return f"connection skillopt_wrong_{name}: "


WRONG = {
    "key": Wrong(ForeignServer(KEY), target("key"), "correct its password", "preflight", key="sk-a-wrong-key-00000"),
    "model": Wrong(ForeignServer(KEY), target("model"), "correct the name of its model", "preflight", model="other"),
    "address": Wrong(
        ForeignServer(KEY),
        f"{target('address')}no model server answers at {NOWHERE}",
        "correct its host",
        "prepare",
        host=NOWHERE,
    ),
    "html": Wrong(ForeignServer(KEY, html=True), target("html"), "correct its host", "preflight"),
    "bucket": Wrong(
        ForeignServer(KEY),
        "access to s3://skillopt-artifacts/",
        "check the credentials of connection skillopt_read_only (storage.conn_id)",
        "preflight",
        overrides=(("storage.conn_id", "skillopt_read_only"),),
    ),
    "image": Wrong(
        ForeignServer(KEY),
        "the engine does not have the image skillopt-nowhere:1",
        "set sandbox.image to one that can be pulled",
        "prepare",
        overrides=(("sandbox.image", "skillopt-nowhere:1"),),
    ),
}


@pytest.fixture(scope="module")
def ended(platform: Any) -> Iterator[dict[str, TrainedRun]]:
    """All of them at once."""
    with ExitStack() as stack:
        proxy = stack.enter_context(proxied(ReadOnlyArtifacts(s3_url(platform.settings), -1, after=False)))
        _create_read_only(platform, proxy)
        runs = {}
        for name, wrong in WRONG.items():
            stack.enter_context(serving(wrong.server))
            host = wrong.host if wrong.host else wrong.server.base_url
            conn_id = f"skillopt_wrong_{name}"
            create_connection(platform, conn_id, host, f"openai-chat:{wrong.model}", password=wrong.key)
            prefix = f"wrong-{name}-{time.time_ns()}/"
            models = {"model.target_conn_id": conn_id, "model.optimizer_conn_id": conn_id, "storage.prefix": prefix}
            run_id = f"wrong-{name}-{time.time_ns()}"
            runs[name] = TrainedRun.trigger(
                platform, run_id, SHORT | {"train.preflight": True} | models | dict(wrong.overrides)
            )
        for run in runs.values():
            assert platform.api.wait(DAG, run.run_id, seconds=300) == "failed"
        yield runs


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_stops_the_run_with_a_sentence_and_hardly_a_call(
    ended: dict[str, TrainedRun], name: str
) -> None:
    wrong, run = WRONG[name], ended[name]
    (failed,) = [row for row in run.task_instances() if row["state"] == "failed"]
    assert (failed["task_id"], failed["try_number"]) == (wrong.task, 1)
    log = "\n".join(run.log(failed))
    assert wrong.sentence in log
    assert wrong.advice in log
    assert len(wrong.server.asked) < 20
    if wrong.task == "prepare":
        assert run.store.list_keys(run.keys.folder) == []
    row = run.platform.api.run(DAG, run.run_id)
    seconds = _time(row["end_date"]) - _time(row["queued_at"])
    print(f"{name}: {seconds:.0f} s from trigger to failure, {len(wrong.server.asked)} requests")


def _time(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _create_read_only(platform: Any, endpoint: str) -> None:
    platform.api.send("DELETE", "/connections/skillopt_read_only")
    extra = json.dumps({"region_name": "us-east-1", "endpoint_url": endpoint})
    body = {"connection_id": "skillopt_read_only", "conn_type": "aws", "login": "test", "password": "test"}
    platform.api.request("POST", "/connections", json=body | {"extra": extra})
