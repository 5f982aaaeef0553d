"""The difference that a target leaves in a repository, by git itself."""

import os
import subprocess
from pathlib import Path

import pytest

from skillopt_airflow.rollout import workspace
from skillopt_airflow.rollout.workspace import Repository


@pytest.fixture
def opened(tmp_path: Path) -> Repository:
    """A copy of a repository of one file, as an item's image has it."""
    tree, git, work = (tmp_path / name for name in ("item/tree", "item/git", "work"))
    tree.mkdir(parents=True)
    work.mkdir()
    (tree / "sums.py").write_text("total = 1\n")
    env = {**os.environ, "GIT_DIR": str(git), "GIT_WORK_TREE": str(tree), "HOME": str(tmp_path)}
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "--message=base"],
        ["config", "core.bare", "false"],
    ):
        subprocess.run(["git", *command], cwd=tree, env=env, check=True)
    made = Repository.open_copy(tmp_path / "item", work)
    assert made is not None
    return made


def test_new_and_changed_files_are_in_the_difference(opened: Repository, tmp_path: Path) -> None:
    (opened.folder / "sums.py").write_text("total = 2\n")
    (opened.folder / "notes.txt").write_text("x\n")
    patch = opened.patch(tmp_path)
    assert b"-total = 1\n+total = 2\n" in patch
    assert b"+++ b/notes.txt" in patch


def test_a_repository_that_the_target_made_in_the_tree_is_left_out(opened: Repository, tmp_path: Path) -> None:
    (opened.folder / "sums.py").write_text("total = 2\n")
    (opened.folder / "zebra.txt").write_text("x\n")
    subprocess.run(["git", "init", "--quiet", str(opened.folder / "demo")], check=True)
    (opened.folder / "demo" / "own.txt").write_text("x\n")
    patch = opened.patch(tmp_path)
    assert b"+total = 2\n" in patch
    assert b"+++ b/zebra.txt" in patch
    assert b"demo" not in patch


def test_what_git_writes_lies_where_there_is_room_and_is_gone_afterwards(
    opened: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    monkeypatch.setattr(workspace.tempfile, "tempdir", "/nowhere")
    (opened.folder / "notes.txt").write_text("x\n")
    assert b"+++ b/notes.txt" in opened.patch(outputs)
    assert list(outputs.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "status"), [("error: unable to write file: No space left on device", 1), ("fatal: broken", 128)]
)
def test_where_git_fails_there_is_no_difference(
    said: str, status: int, opened: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\ncase \"$*\" in *add*--all*) echo '{said}' >&2; exit {status};; esac\n")
    git.chmod(0o755)
    monkeypatch.setattr(workspace, "SYSTEM_PATH", str(git.parent))
    with pytest.raises(OSError, match=said):
        opened.patch(tmp_path)
