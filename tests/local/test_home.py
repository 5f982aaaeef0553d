import json
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from local.home import SOCKET_NAME, SOCKET_PATH_BYTES, Home, Workers
from skillopt_airflow.core.errors import PlatformError


def test_settings_are_chosen_once_and_kept_to_the_owner(tmp_path: Path):
    home = Home.at(tmp_path / "home")
    chosen = home.read_or_choose()

    assert home.read_or_choose() == home.read() == chosen
    assert stat.S_IMODE(home.settings_file.stat().st_mode) == 0o600


def test_missing_and_damaged_settings_are_named(tmp_path: Path):
    home = Home.at(tmp_path)
    with pytest.raises(PlatformError, match="make up"):
        home.read()
    home.settings_file.write_text('{"ports": {}}')
    with pytest.raises(PlatformError, match=r"settings\.json is damaged"):
        home.read()


def test_only_the_taken_port_of_an_idle_server_changes(home: Home):
    settings = home.read()
    with socket.create_server(("127.0.0.1", settings.ports.s3)):
        busy = home.replace_taken_ports(settings, idle=["airflow", "model"])
        moved = home.replace_taken_ports(settings, idle=["airflow", "s3", "model"])

    assert busy == settings
    assert moved.ports.s3 != settings.ports.s3
    assert replace(moved.ports, s3=settings.ports.s3) == settings.ports
    assert home.read() == moved


def test_sockets_lie_in_the_home_unless_their_path_would_be_too_long(tmp_path: Path):
    short, long = Home(Path("/srv/skillopt")), Home(tmp_path / ("a" * 100))

    assert short.sockets.parent == short.root
    assert long.root not in long.sockets.parents
    assert len(str(long.sockets / SOCKET_NAME)) <= SOCKET_PATH_BYTES
    assert long.sockets != Home(tmp_path / ("b" * 100)).sockets


def test_workers_are_remembered_and_a_platform_of_before_has_none(home: Home):
    settings = home.read()
    before = json.loads(home.settings_file.read_text())
    del before["workers"], before["ports"]["registry"]
    home.settings_file.write_text(json.dumps(before))

    assert home.read() == settings
    assert home.write(replace(settings, workers=Workers(3, 2))) == home.read()
