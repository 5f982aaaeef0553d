import json
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from local import services, shell_commands
from local.airflow_services import SERVER
from local.environment import HOME_VARIABLE, OPTIMIZER_CONNECTION, S3_CONNECTION, TARGET_CONNECTION, s3_url
from local.home import PROJECT, SOCKET_NAME, Home


@pytest.fixture(autouse=True)
def _written(home: Home) -> None:
    shell_commands.write(home)


@pytest.fixture
def running(home: Home) -> Iterator[Home]:
    """A home whose database accepts connections."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home.sockets / SOCKET_NAME))
        server.listen()
        yield home


def run(home: Home, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command's outcome, typed in a folder by a user who has nothing of the project in the environment."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONPATH", "AWS"))}
    program = home.bin / words[0]
    return subprocess.run(
        [program, *words[1:]], cwd=folder, env=outer | variables, capture_output=True, text=True, check=False
    )


def seen(home: Home, folder: Path, **variables: str) -> dict[str, str]:
    """The environment in which the home's Python runs."""
    done = run(home, folder, "python", "-c", "import json, os; print(json.dumps(dict(os.environ)))", **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_it_runs_in_the_platforms_environment_from_any_folder(running: Home, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "__init__.py").write_text("raise RuntimeError('not of the project')")
    found = seen(running, tmp_path)
    assert found["AIRFLOW_HOME"] == str(running.airflow)
    assert found["PYTHONPATH"].split(os.pathsep) == [str(PROJECT / "include"), str(PROJECT)]
    assert found["AWS_ENDPOINT_URL_S3"] == s3_url(running.read())


def test_arguments_and_the_exit_code_pass_unchanged(running: Home, tmp_path: Path) -> None:
    done = run(running, tmp_path, "python", "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "$HOME", "")
    assert (done.returncode, done.stdout.strip()) == (7, str(["a b", "$HOME", ""]))


def test_the_users_own_connections_and_object_store_are_kept(running: Home, tmp_path: Path) -> None:
    own = {TARGET_CONNECTION: "mine", S3_CONNECTION: "aws://", "AWS_PROFILE": "mine"}
    found = seen(running, tmp_path, **own)
    assert {name: found[name] for name in own} == own
    assert "AWS_ENDPOINT_URL_S3" not in found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_another_shell_has_the_connections_that_the_platform_was_started_with(running: Home, tmp_path: Path) -> None:
    own = {TARGET_CONNECTION: "mine", S3_CONNECTION: "aws://"}
    running.write(replace(running.read(), connections=tuple(own)))
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    judge, ours = {"AIRFLOW_CONN_SKILLOPT_JUDGE": "mine, too"}, {OPTIMIZER_CONNECTION: "the stand-in as it was"}
    services.ensure_process(
        running, services.Service(SERVER, command, own | judge | ours | {HOME_VARIABLE: str(running.root)})
    )
    try:
        found = seen(running, tmp_path)
        assert {name: found[name] for name in own | judge} == own | judge
        assert found[OPTIMIZER_CONNECTION] != ours[OPTIMIZER_CONNECTION]
        assert "AWS_ENDPOINT_URL_S3" not in found
        found = seen(running, tmp_path, **{TARGET_CONNECTION: "another", S3_CONNECTION: ""})
        assert found[TARGET_CONNECTION] == "another"
        assert found["AWS_ENDPOINT_URL_S3"] == s3_url(running.read())
    finally:
        services.stop(running, SERVER)
    done = run(running, tmp_path, "python", "-c", "")
    assert done.returncode == 1
    assert TARGET_CONNECTION in done.stderr
    assert S3_CONNECTION in done.stderr


def test_an_object_store_that_is_set_to_nothing_is_the_platforms(home: Home) -> None:
    found = shell_commands.command_environment(home, "python", {S3_CONNECTION: ""})
    assert found["AWS_ENDPOINT_URL_S3"] == s3_url(home.read())


def test_airflow_keeps_the_users_account_at_a_models_provider(home: Home) -> None:
    found = shell_commands.command_environment(home, "airflow", {})
    assert found.get("AWS_ACCESS_KEY_ID") == os.environ.get("AWS_ACCESS_KEY_ID")


@pytest.mark.nightly
@pytest.mark.parametrize("program", shell_commands.PROGRAMS)
def test_while_the_platform_is_down_the_way_is_told(home: Home, tmp_path: Path, program: str) -> None:
    done = run(home, tmp_path, program, "--version")
    assert done.returncode == 1
    assert str(home.root) in done.stderr
    assert "`make up`" in done.stderr


def test_the_scripts_hold_no_key(home: Home) -> None:
    settings = home.read()
    keys = {settings.fernet_key, settings.jwt_secret, settings.session_key, settings.password}
    for program in shell_commands.PROGRAMS:
        text = (home.bin / program).read_text()
        assert not [key for key in keys if key in text]
    assert stat.S_IMODE(home.settings_file.stat().st_mode) == 0o600


def test_commands_are_named_as_they_are_typed(home: Home) -> None:
    assert shell_commands.paths(Home(PROJECT / ".local")) == ".local/bin/airflow and .local/bin/python"
    assert shlex.split(shell_commands.paths(home)) == [str(home.bin / "airflow"), "and", str(home.bin / "python")]
