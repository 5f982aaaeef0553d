"""What the README tells a user to type is right for today's code."""

import json
import re
import shlex
from pathlib import Path

import pytest

from skillopt_airflow import consumer
from skillopt_airflow.models import connection
from skillopt_airflow.pipeline import params

PROJECT = Path(__file__).resolve().parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


def commands(word: str) -> list[list[str]]:
    found = [shlex.split(line) for line in COMMANDS if line.split()[0] == word]
    assert found, f"the README has no {word} command"
    return found


def test_every_command_is_of_a_kind_that_is_checked_here() -> None:
    assert {line.split()[0] for line in COMMANDS} == {"make", "export", "airflow", "python"}


def test_the_first_two_commands_are_demo_and_test() -> None:
    assert COMMANDS[:2] == ["make demo", "make test"]


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {words[1] for words in commands("make")} | set(re.findall(r"`make ([a-z-]+)`", README))
    assert named <= targets


def test_the_overrides_of_a_triggered_training_are_legal() -> None:
    # That Airflow and the DAG's form take every command is in test_docs.
    for words in commands("airflow"):
        if words[2] == "trigger" and words[3].startswith("train_"):
            config = params.benchmark_config(words[3].removeprefix("train_"))
            assert params.run_config(config, json.loads(words[words.index("--conf") + 1])) != config


def test_the_consumer_understands_its_command() -> None:
    for words in commands("python"):
        assert words[1] == "include/skillopt_airflow/consumer.py"
        assert consumer._parser().parse_args(words[2:]).bucket


def test_the_connections_lead_to_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands("export"):
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
    assert connection.target_upstream("skillopt_target", None).dialect == "openai-chat"
    assert connection.model_name("skillopt_optimizer", None).startswith("openai:")


def test_every_file_that_is_linked_or_named_exists() -> None:
    links = (link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README))
    linked = [link for link in links if not link.startswith("http")]
    named = re.findall(r"`((?:docker|include|bench|benchmarks|docs)/[\w./]+)`", README)
    missing = [name for name in [*linked, *named] if "<" not in name and not (PROJECT / name).exists()]
    assert not missing
