"""What a task takes from what a sandbox left, which is not to be trusted, and what a courier brings out of it."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from skillopt_airflow.core.values.types import MAX_FILES, ModelCall
from skillopt_airflow.gateway.remaining_budget import ENDED, RemainingBudget
from skillopt_airflow.gateway.serve import ServeConfig
from skillopt_airflow.rollout.workspace import output_files
from skillopt_airflow.sandbox.kubernetes.courier import plain_outputs
from skillopt_airflow.sandbox.kubernetes.remote_folder import (
    CALLS,
    FILES,
    PROXIES,
    TRAJECTORIES,
    RemoteFolder,
    gateway_document,
    gateway_settings,
)
from skillopt_airflow.sandbox.untrusted_output import unpack
from tests.sandbox.tars import member, tar_of

MOST = 1000

NONE = RemainingBudget()


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Of a task whose sandbox has two items."""
    for index in "01":
        (tmp_path / "out" / "files" / index).mkdir(parents=True)
    return tmp_path / "out"


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_only_plain_files_of_open_items_are_taken(outputs):
    names = ("0/../../escaped", "/etc/escaped", "0/deep/er", "2/of-no-item", "-1/x", "²/x", "x", "0/..", "00/x")
    hostile = [member(name, b"x") for name in names]
    hostile += [member("0/link", kind=tarfile.SYMTYPE), member("0", kind=tarfile.DIRTYPE)]
    for one in hostile:
        unpack(tar_of(one, member("1/good", b"x")), outputs / "files", MOST)
        assert left(outputs.parent) == ["out/files/1/good"]
        (outputs / "files" / "1" / "good").unlink()


def test_all_files_together_have_a_limit_and_a_log_has_one_line_of_many_refused(outputs, caplog):
    body = tar_of(member("0/a", b"x" * 600), member("0/b", b"x" * 600), member("1/c", b"x" * 400))
    unpack(body, outputs / "files", MOST)
    assert left(outputs) == ["files/0/a"]
    caplog.clear()
    unpack(tar_of(*(member(f"x{number}", b"x") for number in range(50))), outputs / "files", MOST)
    (message,) = caplog.messages
    assert "50 files" in message
    for broken in (b"", b"no tar at all", tar_of(member("0/a", b"x" * 900))[:700]):
        unpack(broken, outputs / "files", MOST)


class Left:
    """A folder of the store, in memory; tells the order in which things are taken."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.taken: list[str] = []

    def take(self, name: str, most: int) -> bytes | None:
        self.taken.append(name)
        return self.objects.pop(name, None)


def folder_of(outputs: Path, exchange: Any, calls: list[ModelCall], allotment: Any = None) -> RemoteFolder:
    return RemoteFolder(outputs.parent, exchange, MOST, Mock() if allotment is None else allotment, calls.append)


def test_rows_are_taken_before_the_files_that_they_name_and_written_behind_them(outputs):
    """The courier leaves files first, so that whatever a row names is there by then."""
    exchange = Left()
    exchange.objects = {TRAJECTORIES: b"row\n", FILES: tar_of(member("0/a", b"x"))}
    folder_of(outputs, exchange, []).fetch()
    assert exchange.taken.index(TRAJECTORIES) < exchange.taken.index(FILES)
    assert left(outputs) == ["files/0/a", "trajectories.jsonl"]


def test_every_call_is_told_once_and_only_when_its_line_is_complete(outputs):
    calls: list[ModelCall] = []
    one = ModelCall(role="target", stage="s", model="m", http_status=200, attempts=1, started=1, seconds=1)
    exchange = Left()
    allotment = Mock()
    folder = folder_of(outputs, exchange, calls, allotment)
    folder.ended = True
    line = one.model_dump_json().encode()
    for rest in (line[:20], line + b"\nnonsense\n", line + b"\nnonsense\n"):
        exchange.objects = {CALLS: line + b"\n" + rest}
        folder.fetch()
    assert calls == [one, one]
    assert allotment.count.call_count == 2
    allotment.complete.assert_not_called()
    exchange.objects = {CALLS: line + b"\n" + line + b"\nnonsense\n" + ENDED + b"\n"}
    folder.fetch()
    allotment.complete.assert_called_once()


def test_a_sandbox_that_works_is_not_asked_at_every_look(outputs):
    exchange = Left()
    folder = folder_of(outputs, exchange, [])
    for _ in range(2):
        folder.fetch()
    assert exchange.taken.count(TRAJECTORIES) == 1
    folder.ended = True
    folder.fetch()
    assert exchange.taken.count(TRAJECTORIES) == 2


def packed(outputs: Path, items: int) -> list[str]:
    return [name for name, _ in plain_outputs(outputs, items, MOST)]


def test_a_courier_packs_plain_files_up_to_its_limit(outputs):
    (outputs / "files" / "0" / "a.csv").write_bytes(b"1,2")
    (outputs / "files" / "0" / "b.csv").symlink_to("/etc/passwd")
    (outputs / "files" / "0" / "folder").mkdir()
    os.mkfifo(outputs / "files" / "0" / "pipe")
    (outputs / "files" / "1" / "large").write_bytes(b"x" * MOST)
    assert packed(outputs, 2) == ["0/a.csv"]


def test_a_courier_packs_the_files_that_the_row_of_an_item_names(outputs):
    folder = outputs / "files" / "0"
    for name in ("result.csv", *(f"{number:03}.tmp" for number in range(MAX_FILES - 2))):
        (folder / name).write_bytes(b"1")
    for number in range(2 * MAX_FILES):
        (folder / f"~lock {number}").write_bytes(b"")
        (folder / f"__pycache__{number}").mkdir()
    assert packed(outputs, 1) == [f"0/{name}" for name in output_files(str(folder))]
    assert "0/result.csv" in packed(outputs, 1)


def test_a_courier_does_not_follow_a_folder_that_became_a_link(outputs, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "gateway.json").write_text("key")
    (outputs / "files" / "0").rmdir()
    (outputs / "files" / "0").symlink_to(secret)
    assert packed(outputs, 2) == []


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("what", ["fetch", "deliver"])
def test_a_courier_that_does_not_get_through_tells_no_address(outputs, tmp_path, what):
    names = ("inputs", "trajectories", "files", "calls")
    config = {name: f"http://127.0.0.1:9/{name}?X-Amz-Signature=secret" for name in names}
    (tmp_path / "courier.json").write_text(json.dumps(config | {"items": 2, "most_bytes": MOST}))
    (outputs / "trajectories.jsonl").write_text("row\n")
    arguments = [str(tmp_path / "courier.json"), str(outputs), str(tmp_path / "calls.jsonl")]
    courier = subprocess.Popen(
        [sys.executable, "-m", "skillopt_airflow.sandbox.kubernetes.courier", what, *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert courier.stderr is not None
    first = "" if what == "fetch" else courier.stderr.readline()
    courier.terminate() if what == "deliver" else None
    _, rest = courier.communicate()
    assert "ConnectError" in first + rest
    assert "secret" not in first + rest


def test_a_workload_says_the_settings_that_the_program_reads(workload):
    work, left = workload(None, concurrency=5), RemainingBudget(calls=9)
    work.run_concurrency = 15
    found = gateway_settings(work, left)
    assert (found.stage, found.max_attempts, found.call_timeout, found.max_tokens) == ("rollout", 2, 60, 64)
    assert (found.max_concurrency, found.share, found.allowance) == (15, 5, left)
    # Of several gateways of the task, none knows what the others do.
    assert [gateway_settings(work, NONE, gateways).share for gateways in (2, 5, 9)] == [2, 1, 1]
    served = ServeConfig.model_validate_json(json.dumps(gateway_document(work, left)))
    assert served.upstream == work.upstream
    assert served.upstream.api_key.get_secret_value() == work.upstream.api_key.get_secret_value() != ""
    assert {name: value for name, value in served if name not in ("upstream", "proxies")} == dict(found)


def test_it_reaches_the_model_by_the_proxies_of_the_worker(monkeypatch, workload):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:word@proxy.corp:3128")
    monkeypatch.setenv("no_proxy", ".corp")
    served = ServeConfig.model_validate_json(json.dumps(gateway_document(workload(None), NONE)))
    assert served.proxies == {"HTTPS_PROXY": "http://user:word@proxy.corp:3128", "no_proxy": ".corp"}
