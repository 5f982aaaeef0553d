"""The commands of `python -m local`: what their parsers have, and what their handlers make of it."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from local import engine, image
from local.__main__ import _parser
from local.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


@pytest.mark.parametrize(
    "line",
    ["up", "down", "status", "demo", "image", "import run", "instance --base a --fix b --out c", "try searchqa"],
)
def test_a_command_reads_what_its_parser_has(line: str) -> None:
    options = _parser().parse_args(line.split())
    read = set(re.findall(r"\boptions\.(\w+)", inspect.getsource(options.run)))
    assert read <= vars(options).keys()


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
