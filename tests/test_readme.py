"""The commands of README and docs/ are right for today's code; test_readme_platform.py runs them."""

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

PAGES = {page: (PROJECT / page).read_text(encoding="utf-8") for page in sorted({block.page for block in BLOCKS})}
COMMANDS = [(block.page, command) for block in BLOCKS for command in block.commands]


def commands(word: str, *pages: str) -> list[list[str]]:
    """The commands that begin with a word, of these pages or of all."""
    found = [shlex.split(line) for page, line in COMMANDS if line.split()[0] == word and page in (pages or PAGES)]
    assert found, f"no page has a {word} command"
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_run_or_has_its_reason(block: Block) -> None:
    assert block.commands
    assert block.is_run or len(block.reasons) == 1


def test_every_reason_is_of_a_block_and_names_files_that_are_there() -> None:
    for page, beginning, why in NOT_RUN:
        assert [block for block in BLOCKS if block.page == page and block.text.startswith(beginning)], beginning
        for file in re.findall(r"[\w/]+\.py", why):
            assert (PROJECT / "tests" / file.removeprefix("tests/")).is_file(), file


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {words[1] for words in commands("make")} | set(re.findall(r"`make ([a-z-]+)", "".join(PAGES.values())))
    assert named <= targets


def test_the_consumer_understands_its_command() -> None:
    for words in commands(".local/bin/python"):
        assert words[1] == "include/skillopt_airflow/consumer.py"
        assert consumer._parser().parse_args(words[2:]).bucket


def test_the_demo_ends_with_commands_of_the_pages() -> None:
    """So they are run as the pages' are."""
    published = Publication.model_construct(version="v0001-0123456789ab", key="skills")
    history = History.model_construct(target="openai-chat:stand-in-target", published=published)
    shown = [command for _, command in next_commands(history, Home(PROJECT / ".local"), StorageGroup())]
    assert len(shown) == 3
    assert set(shown) <= {command for _, command in COMMANDS}


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


@pytest.mark.parametrize("page", ["README.md", "docs/real_model.md"])
def test_the_connections_lead_to_models(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands("export", page):
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
    assert connection.target_upstream("skillopt_target", None).dialect == "openai-chat"
    assert connection.model_name("skillopt_optimizer", None).startswith("openai:")
