"""Two commits of a small repository become an instance, by the command that its README names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import command_blocks
import pytest
from command_blocks import PROJECT
from local_repository import committed, git

from benchmarks.swebench import make_splits
from benchmarks.swebench.adapter import BENCHMARK
from benchmarks.swebench.make_instance import main

WRONG = "def double(number):\n    return number + 2\n"
TEST = """import unittest

from thing import double


class DoubleTest(unittest.TestCase):
    def test_two(self):
        self.assertEqual(double(2), 4)
"""
MORE = """
    def test_three(self):
        self.assertEqual(double(3), 6)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repositories") / "Thing"
    folder.mkdir()
    git(folder, "init", "-q")
    committed(folder, "base", thing=WRONG, tests__test_thing=TEST)
    (folder / "tests" / "__init__.py").touch()
    # What its owner may have set, for releases and for looking at differences.
    (folder / ".gitattributes").write_text("tests export-ignore\n")
    git(folder, "config", "diff.noprefix", "true")
    git(folder, "config", "color.ui", "always")
    committed(folder, "package")
    git(folder, "tag", "base")
    right = WRONG.replace("number + 2", "number * 2")
    committed(folder, "double(3) is 5\n\nIt should be 6.", thing=right, tests__test_thing=TEST + MORE)
    git(folder, "tag", "fix")
    committed(folder, "tests alone", tests__test_thing=TEST + MORE.replace("three", "four"))
    git(folder, "tag", "tests")
    committed(folder, "source alone", thing=right + "\n\nONE = 1\n")
    git(folder, "tag", "source")
    committed(folder, "shows nothing", thing=right, tests__test_thing=TEST)
    git(folder, "tag", "nothing")
    broken = TEST.replace("import double", "import nowhere")
    committed(folder, "breaks", thing=right + "\n\nTWO = 2\n", tests__test_thing=broken)
    git(folder, "tag", "breaks")
    return folder


def instance(repository: Path, out: Path, base: str, fix: str) -> int:
    return main(["--repo", str(repository), "--base", base, "--fix", fix, "--out", str(out)])


def test_two_commits_become_an_instance(repository: Path, tmp_path: Path):
    assert instance(repository, tmp_path / "mine", "base", "fix") == 0
    (folder,) = (tmp_path / "mine").iterdir()
    record = json.loads((folder / "instance.json").read_bytes())
    assert folder.name == record["instance_id"] == f"local__thing-{git(repository, 'rev-parse', 'fix')[:8]}"
    assert record["problem_statement"] == "double(3) is 5\n\nIt should be 6.\n"
    assert json.loads(record["FAIL_TO_PASS"]) == ["test_three (tests.test_thing.DoubleTest)"]
    assert json.loads(record["PASS_TO_PASS"]) == ["test_two (tests.test_thing.DoubleTest)"]
    assert "number * 2" in record["patch"]
    assert "test_three" not in record["patch"]
    assert "test_three" in record["test_patch"]
    make_splits.main(tmp_path / "mine", tmp_path / "mine")
    (row,) = json.loads((tmp_path / "mine" / "test" / "items.json").read_bytes())
    item = BENCHMARK.item(row)
    assert item.reference["fail_to_pass"] == ["test_three (tests.test_thing.DoubleTest)"]
    assert item.image
    assert (tmp_path / "mine" / item.image.tree.path).is_file()


def test_what_is_no_instance_is_told(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for base, fix, said in (
        ("base", "nowhere", "git rev-parse"),
        ("fix", "tests", "nothing but tests"),
        ("tests", "source", "no file of tests"),
        ("source", "nothing", "no test fails"),
        ("nothing", "breaks", "do not run"),
    ):
        assert instance(repository, tmp_path / "mine", base, fix) == 1
        assert said in capsys.readouterr().err
        assert not (tmp_path / "mine").exists()


def test_the_commands_of_the_readme_are_those_that_work(repository: Path, tmp_path: Path):
    """They are typed as they stand, in a clone whose last commit is the fix."""
    blocks = command_blocks.blocks(PROJECT / "benchmarks" / "swebench" / "README.md")
    block, _ = blocks
    make, splits = block.commands
    clone = tmp_path / "thing"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    git(clone, "checkout", "-q", "fix")
    assert make.startswith("make instance ")
    named = dict(part.split("=", 1) for part in make.split()[2:])
    recipe = (PROJECT / "Makefile").read_text().partition("\ninstance: venv")[2].partition("\n\n")[0]
    assert all(f"$({name})" in recipe for name in named)
    options = [word for name, value in named.items() for word in (f"--{name.lower()}", value)]
    env = {**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'include'}"}
    for command in (["benchmarks.swebench.make_instance", *options], splits.split()[2:]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=clone, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert len(json.loads((clone / "instances" / "test" / "items.json").read_bytes())) == 1
