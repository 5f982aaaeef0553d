import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local import audit
from local.served import served

HASH = "sha256:" + "0" * 64
VULNERABILITY = {
    "id": "GHSA-aaaa-bbbb-cccc",
    "summary": "It runs what it is given.",
    "affected": [{"package": {"name": "old-parser", "ecosystem": "PyPI"}, "ranges": []}],
}


class Service(BaseHTTPRequestHandler):
    """The vulnerability service's one route, which knows one vulnerability."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = asked["package"]["name"] == "old-parser" and asked["version"] == "1.0"
        body = json.dumps({"vulns": [VULNERABILITY]} if found else {}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    with served(server):
        monkeypatch.setattr(audit, "SERVICE", [*audit.SERVICE, "--osv-url", f"http://127.0.0.1:{server.server_port}"])
        yield


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docker").mkdir()
    (tmp_path / "requirements.txt").write_text(f"sound==2.0 --hash={HASH}\n")
    (tmp_path / "docker" / "gateway-requirements.txt").write_text(f"old-parser==1.0 --hash={HASH}\n")
    return tmp_path


@pytest.mark.usefixtures("service")
def test_a_vulnerable_package_of_an_images_lock_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.run(project) == audit.VULNERABLE
    assert "GHSA-aaaa-bbbb-cccc" in capsys.readouterr().out
    assert audit.run(project, ["GHSA-aaaa-bbbb-cccc"]) == 0
    assert "No known vulnerabilities found" in capsys.readouterr().out


def test_a_service_that_does_not_answer_is_named_and_nothing_passes_as_audited(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # No server listens on the discard port.
    monkeypatch.setattr(audit, "SERVICE", [*audit.SERVICE, "--osv-url", "http://127.0.0.1:9"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert audit.run(project) == audit.NOT_AUDITED
    said = capsys.readouterr()
    assert said.out == ""
    assert "nothing was audited: " in said.err
    assert "127.0.0.1" in said.err
