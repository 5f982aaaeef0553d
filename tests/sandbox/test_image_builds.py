"""How images of items are built and removed, on engines that only tell, and how packages are fetched."""

import fcntl
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.core.values.types import ItemImage
from skillopt_airflow.sandbox.docker import item_images
from skillopt_airflow.sandbox.docker.container import EXPIRES_LABEL, NEVER
from skillopt_airflow.sandbox.docker.item_images import ITEM_IMAGE_LABEL, ItemImages, fetch_packages, remove_unused
from skillopt_airflow.sandbox.staging import is_locked
from tests.sandbox.small_repository import CONTENTS, small_item


class Engine:
    """Has the base image alone, and refuses each container after a moment."""

    timeout = 60

    def __init__(self) -> None:
        self.most = self.refused = self._now = 0
        self._lock = threading.Lock()

    def inspect_image(self, name: str) -> dict[str, Any]:
        if not name.startswith("base"):
            raise ImageNotFound(name)
        return {"Id": name}

    def create_host_config(self, **limits: Any) -> SimpleNamespace:
        return SimpleNamespace(**limits)

    def create_container(self, image: str, **options: Any) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1
            self.refused += 1
        raise ImageMissing("no container today")


class CommittingEngine(Engine):
    """Makes an image of a container with its labels, as Docker does where it is told no others."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, dict[str, str]] = {}
        """Labels of the images."""
        self._labels: dict[str, str] = {}
        self.hosts: dict[str, Any] = {}
        """Host configurations of the containers, by their image."""
        self.started: list[str] = []

    def inspect_image(self, name: str) -> dict[str, Any]:
        return super().inspect_image(name) | {"Config": {"Labels": {"of": "base"}}}

    def create_container(self, image: str, **options: Any) -> dict[str, Any]:
        self._labels, self.hosts[image] = options["labels"], options["host_config"]
        return {"Id": image}

    def commit(self, container: str, repository: str, version: str, conf: dict[str, Any]) -> None:
        self.made[f"{repository}:{version}"] = self._labels | conf["Labels"]

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Do as it is told."""

    stop = put_archive = remove_container = tag = _nothing

    def start(self, container: str) -> None:
        self.started.append(container)

    def get_archive(self, container: str, path: str) -> tuple[list[bytes], dict[str, Any]]:
        return [], {}


def test_a_build_is_held_and_locked_and_its_image_has_no_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep leaves its folder while its task lives, and no other process can build the image at the same time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(item_images, "execute", lambda *_, **__: (0, "3.11 x86_64"))
    seen: list[bool] = []

    def look(*given: Any) -> None:
        (lock,) = tmp_path.glob("*/*.lock")
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(is_locked(given[2].parents[1]))

    monkeypatch.setattr(item_images, "fetch_packages", look)
    engine = CommittingEngine()
    labels = engine.made[ItemImages(engine, "base", SandboxGroup(), lambda _: CONTENTS).judge_image(small_item())]
    assert seen == [True]
    assert labels.items() >= {"of": "base", ITEM_IMAGE_LABEL: small_item().id, EXPIRES_LABEL: NEVER}.items()


class Keeping:
    """An engine with images, whose times of their last name are known by name or id."""

    def __init__(self, images: list[dict[str, Any]], tagged: dict[str, str]) -> None:
        self._images = images
        self._tagged = tagged
        self.removed: list[str] = []

    def images(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        assert ITEM_IMAGE_LABEL in filters["label"]
        return self._images

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self._tagged:
            raise ImageNotFound(name, explanation="no such image")
        return {"Created": "2026-01-02T00:00:00Z", "Metadata": {"LastTagTime": self._tagged[name]}}

    def remove_image(self, name: str) -> None:
        if name == "sha256:run":
            raise APIError(name, explanation="a container uses it")
        self.removed.append(name)


def test_images_that_lost_their_name_are_removed_by_their_id_and_hide_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [
        {"Id": "sha256:gone", "RepoTags": ["skillopt-item:gone"]},
        {"Id": "sha256:lost", "RepoTags": ["<none>:<none>"]},
        {"Id": "sha256:run", "RepoTags": None},
        {"Id": "sha256:new", "RepoTags": []},
        {"Id": "sha256:old", "RepoTags": ["skillopt-item:old"]},
        {"Id": "sha256:used", "RepoTags": ["skillopt-item:used"]},
    ]
    before, since = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00.123456789Z"
    tagged = dict.fromkeys(["sha256:run", "skillopt-item:old"], before) | {"sha256:lost": "0001-01-01T00:00:00Z"}
    engine = Keeping(images, tagged | {"sha256:new": since, "skillopt-item:used": since})
    monkeypatch.setattr(item_images.time, "time", lambda: datetime(2026, 2, 2, tzinfo=UTC).timestamp())
    assert remove_unused(engine, days=14) == engine.removed == ["sha256:lost", "skillopt-item:old"]


def test_an_image_that_an_item_names_starts_only_to_be_judged_in_and_without_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(item_images, "execute", lambda *_, **__: (0, ""))
    image = ItemImage(name="base-named", folder="/testbed", environment="/opt/environment")
    item = small_item().model_copy(update={"image": image})
    engine = CommittingEngine()
    images = ItemImages(engine, "base", SandboxGroup(), lambda _: CONTENTS)

    images.target_image(item)
    assert (sorted(engine.hosts), engine.started) == (["base", "base-named"], ["base"])
    images.judge_image(item)
    assert engine.started == ["base", "base-named"]
    assert [host.cap_drop for host in engine.hosts.values()] == [["ALL"]] * 2


def test_a_task_builds_two_at_a_time_whoever_opened_the_images() -> None:
    engine, limits = Engine(), SandboxGroup()

    def judged(number: int) -> None:
        with pytest.raises(ImageMissing, match="no container today"):
            ItemImages(engine, f"base-{number}", limits, lambda _: CONTENTS).judge_image(small_item())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(judged, range(6)))
    assert (engine.most, engine.refused) == (2, 6)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose pip writes down the file of requirements and its environment, and installs nothing."""
    program, said = tmp_path / "python", tmp_path / "said.json"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        f"json.dump([open(sys.argv[-1]).read(), dict(os.environ), os.getcwd()], open({str(said)!r}, 'w'))\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(item_images.sys, "executable", str(program))
    return said


def test_requirements_that_would_run_code_on_the_worker_are_refused(pip: Path, tmp_path: Path) -> None:
    for line in (
        "evil @ https://example.org/evil-1.0.tar.gz",
        "./evil-1.0.tar.gz",
        "git+https://example.org/evil",
        "-r other.txt",
        "evil==1.0 --hash=sha256:00 --find-links=/tmp",
        "evil==1.0 --config-settings=x=y",
        "evil==${AIRFLOW_CONN_SKILLOPT_TARGET}",
    ):
        with pytest.raises(ImageMissing, match="item i-1") as refused:
            fetch_packages(f"pytest==8.3.5\n{line}\n".encode(), "3.11 x86_64", tmp_path, "i-1")
        assert line in str(refused.value)
        assert not pip.exists()


def test_pip_gets_the_packages_that_are_named_and_nothing_of_the_workers_secrets(
    pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_TARGET", "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example.org/simple")
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    text = "# what the tests need\n\npytest==8.3.5  # the runner\nrequests[socks]>=2 ; python_version < '4'\n"
    text += f"pluggy==1.5.0 \\\n    --hash=sha256:{'0' * 64} \\\r\n    --hash=sha256:{'1' * 64}\r\n"
    fetch_packages(text.encode(), "3.11 x86_64", tmp_path, "i-1")
    given, environment, folder = json.loads(pip.read_text())
    assert given.splitlines() == [
        "pytest==8.3.5",
        'requests[socks]>=2; python_version < "4"',
        f"pluggy==1.5.0 --hash=sha256:{'0' * 64} --hash=sha256:{'1' * 64}",
    ]
    assert folder == str(tmp_path)
    assert environment["PIP_INDEX_URL"] == "https://mirror.example.org/simple"
    assert environment["https_proxy"] == "http://proxy.example.org:3128"
    assert "secret" not in environment.values()
    assert environment.keys() >= {"PATH"}
