"""The commands of `python -m local`: what their parsers have, and what their handlers make of it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local import engine, image, platform, postgres
from local.__main__ import _carry_home, _parser, _workers
from local.environment import HOME_VARIABLE, IDLE_VARIABLE, OPTIMIZER_CONNECTION, S3_CONNECTION, TARGET_CONNECTION
from local.home import NO_WORKERS, Home, Workers
from skillopt_airflow.core.errors import EngineUnavailable, PlatformError


@pytest.mark.parametrize(
    ("line", "workers"),
    [
        ("up", NO_WORKERS),
        ("up --executor celery", Workers(3, 3)),
        ("up --executor celery --workers 5 --engines 2", Workers(5, 2)),
        ("up --executor celery --workers 1 --engines 2", Workers(1, 1)),
    ],
)
def test_celery_has_as_many_workers_as_it_is_told(line: str, workers: Workers) -> None:
    assert _workers(_parser().parse_args(line.split())) == workers


def test_a_command_that_starts_itself_again_keeps_the_schedulers_pause(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: dict[str, str] = {}
    monkeypatch.setattr(os, "execve", lambda program, arguments, variables: carried.update(variables))
    monkeypatch.setenv(HOME_VARIABLE, "/elsewhere")
    monkeypatch.setenv(IDLE_VARIABLE, "1")
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "1")
    _carry_home(home, ["up"])
    assert (carried[HOME_VARIABLE], carried[IDLE_VARIABLE]) == (str(home.root), "1")
    assert "AIRFLOW__CORE__PARALLELISM" not in carried


def test_the_stand_in_is_no_part_of_a_platform_with_models_of_the_users_own(home: Home) -> None:
    settings = home.read_or_choose()
    assert platform.states(home)["model"] == "stopped"
    home.write(replace(settings, connections=(TARGET_CONNECTION, S3_CONNECTION)))
    assert "model" in platform.states(home)
    home.write(replace(settings, connections=(TARGET_CONNECTION, OPTIMIZER_CONNECTION)))
    assert "model" not in platform.states(home)


def test_down_stops_the_rest_where_docker_refuses_and_the_settings_are_damaged(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(docker_host: str, *_: Any) -> None:
        raise EngineUnavailable(f"{docker_host} refused")

    def stopped_by_half(root: Path) -> None:
        stopped.append("engine")
        raise EngineUnavailable("our own refused")

    stopped: list[str] = []
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "answers", lambda _: True)
    monkeypatch.setattr(engine, "remove_containers", refused)
    monkeypatch.setattr(engine, "stop", stopped_by_half)
    monkeypatch.setattr(postgres, "stop", lambda _: stopped.append("postgres"))
    home.settings_file.write_text("{")
    platform.down(home)
    assert stopped == ["postgres", "engine"]
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in said] == ["warning:"] * 3
    damaged, first, second = said
    assert f"{home.settings_file} is damaged" in damaged
    assert f"{engine.DEFAULT_SOCKET} refused" in first
    assert "our own refused" in second


@pytest.mark.parametrize("line", ["up --workers 3", "up --engines 2", "up --executor local --workers 3"])
def test_workers_without_celery_are_refused(line: str) -> None:
    with pytest.raises(PlatformError, match="EXECUTOR=celery"):
        _workers(_parser().parse_args(line.split()))


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("image codex", (["codex"], "")),
        ("image airflow gateway --base apache/airflow:3.3.2", (["airflow", "gateway"], "apache/airflow:3.3.2")),
    ],
)
def test_images_are_built_on_the_base_that_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch, line: str, asked: tuple[list[str], str]
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(engine, "ensure", lambda *_: "unix:///an/engine.sock")
    monkeypatch.setattr(image, "ensure", lambda *arguments: built.append(arguments))
    options = _parser().parse_args(line.split())
    assert options.run(home, options) == 0
    assert built == [(home.root, "unix:///an/engine.sock", print, *asked)]
