"""What the README tells a user to type is right for today's code; test_readme_platform.py runs it."""

import re
import shlex
from pathlib import Path

import pytest
from command_blocks import BLOCKS, NOT_RUN, PROJECT, Block

from local.demo import BENCHMARK, next_commands
from local.home import Home
from skillopt_airflow import consumer
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.run.history import History, Publication
from skillopt_airflow.models import connection

README = (PROJECT / "README.md").read_text(encoding="utf-8")
COMMANDS = [command for block in BLOCKS if block.page == "README.md" for command in block.commands]


def commands(word: str) -> list[list[str]]:
    found = [shlex.split(line) for line in COMMANDS if line.split()[0] == word]
    assert found, f"the README has no {word} command"
    return found


def reasons(block: Block) -> list[str]:
    """Why the block is not run, as the list has it."""
    return [why for page, beginning, why in NOT_RUN if page == block.page and block.text.startswith(beginning)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_run_or_has_its_reason(block: Block) -> None:
    assert block.commands
    assert len(reasons(block)) == (0 if block.is_run else 1)


def test_every_reason_is_of_a_block_and_names_files_that_are_there() -> None:
    for page, beginning, why in NOT_RUN:
        assert [block for block in BLOCKS if block.page == page and block.text.startswith(beginning)], beginning
        for file in re.findall(r"[\w/]+\.py", why):
            assert (PROJECT / "tests" / file.removeprefix("tests/")).is_file(), file


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {words[1] for words in commands("make")} | set(re.findall(r"`make ([a-z-]+)", README))
    assert named <= targets


def test_the_consumer_understands_its_command() -> None:
    for words in commands(".local/bin/python"):
        assert words[1] == "include/skillopt_airflow/consumer.py"
        assert consumer._parser().parse_args(words[2:]).bucket


def test_the_demo_ends_with_commands_of_the_readme() -> None:
    """So they are run as the README's are."""
    published = Publication.model_construct(version="v0001-0123456789ab", key="skills")
    history = History.model_construct(target="openai-chat:stand-in-target", published=published)
    shown = [command for _, command in next_commands(history, Home(PROJECT / ".local"), StorageGroup())]
    assert len(shown) == 3
    assert set(shown) <= set(COMMANDS)


def test_the_demo_without_a_publication_names_none() -> None:
    history = History.model_construct(target="openai-chat:stand-in-target", published=None)
    of_home = next_commands(history, Home(Path("/elsewhere/a home")), StorageGroup())
    shown = [shlex.split(command) for _, command in of_home]
    assert [words[:4] for words in shown] == [
        ["/elsewhere/a home/bin/airflow", "dags", "trigger", f"{dag}_{BENCHMARK}"] for dag in ("evaluate", "train")
    ]
    assert "champion" not in str(shown)


def test_the_demo_in_a_bucket_and_under_a_prefix_of_ones_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLOPT_DAG_PREFIX", "search.")
    published = Publication.model_construct(version="v0001-0123456789ab", key="skills")
    history = History.model_construct(target="openai-chat:gpt-5-mini", published=published)
    storage = StorageGroup(artifact_bucket="of-the-team", prefix="skills/")
    fetch, score, again = (command for _, command in next_commands(history, Home(PROJECT / ".local"), storage))
    assert " --bucket of-the-team --prefix skills/ " in fetch
    assert score.startswith(".local/bin/airflow dags trigger search.evaluate_searchqa ")
    assert again.startswith(".local/bin/airflow dags trigger search.train_searchqa ")


def test_the_connections_lead_to_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands("export"):
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
    assert connection.target_upstream("skillopt_target", None).dialect == "openai-chat"
    assert connection.model_name("skillopt_optimizer", None).startswith("openai:")
