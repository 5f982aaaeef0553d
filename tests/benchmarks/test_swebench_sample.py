"""The sample of SWE-bench: it is made again, and each bug is shown by its tests and repaired by its patch alone."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.swebench import make_sample
from benchmarks.swebench.make_sample import NAMES, SAMPLE, bugs, in_splits
from skillopt_airflow.core.repository_patch import candidate_patch
from skillopt_airflow.core.resolution import Outcome, Verdict, resolve, unbelieved
from skillopt_airflow.core.run_logs import LogFormat, worst
from skillopt_airflow.sandbox.tar_archive import extract

BUGS = [bug for _, bug in in_splits()]


def test_the_sample_is_made_again(tmp_path: Path):
    make_sample.main(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*") if path.is_file())
    assert made == sorted(path.relative_to(SAMPLE) for path in SAMPLE.rglob("*.*") if path.is_file())
    for path in made:
        one, other = (folder.joinpath(path).read_bytes() for folder in (tmp_path, SAMPLE))
        # Another zlib may pack the same bytes in another way.
        assert one == other or gzip.decompress(one) == gzip.decompress(other), path


def test_each_split_has_its_size_and_the_whole_is_small():
    assert Counter(split for split, _ in in_splits()) == {"train": 10, "val": 6, "test": 8}
    for split in ("train", "val", "test"):
        rows = json.loads((SAMPLE / split / "items.json").read_bytes())
        assert {row["repo"].partition("/")[2] for row in rows} == {*NAMES}
        assert all((SAMPLE / row["instance"] / "repo.tar.gz").is_file() for row in rows)
    assert all(len(bugs(name)) == 4 for name in NAMES)
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 300_000


@pytest.mark.parametrize("bug", BUGS, ids=[bug.instance_id for bug in BUGS])
def test_the_patch_resolves_it_and_neither_nothing_nor_the_usual_mistake_does(bug: make_sample.Bug, tmp_path: Path):
    record = json.loads((SAMPLE / "instances" / bug.instance_id / "instance.json").read_bytes())
    assert candidate_patch(record["patch"]).left_out == {}
    assert candidate_patch(record["test_patch"]).files == ()
    nothing = judged(bug, record, "", tmp_path / "nothing")
    assert (nothing.outcome, nothing.fixed, nothing.lost) == (Outcome.UNRESOLVED, (), ())
    assert judged(bug, record, record["patch"], tmp_path / "gold").resolved
    hasty = judged(bug, record, "", tmp_path / "hasty", mistake=True)
    assert hasty.outcome in (Outcome.UNRESOLVED, Outcome.PARTIAL)
    assert hasty.lost if bug.needs == "signature" else not hasty.lost


def judged(
    bug: make_sample.Bug,
    record: dict[str, Any],
    patch: str,
    tree: Path,
    *,
    mistake: bool = False,
) -> Verdict:
    """Run an instance's tests in a tree of its own with a patch, or with the mistake in place of the wrong part."""
    folder = SAMPLE / "instances" / bug.instance_id
    extract([gzip.decompress((folder / "repo.tar.gz").read_bytes())], Path(tree), 1_000_000)
    if mistake:
        file = tree / bug.file
        file.write_text(make_sample.exchanged(file.read_text(), bug.wrong, bug.mistake, bug.instance_id))
    for diff in (patch, record["test_patch"]):
        if diff:
            subprocess.run(["git", "apply", "-"], cwd=tree, input=diff, text=True, check=True)
    files = json.loads((folder / "run.json").read_bytes())["files"]
    command = [sys.executable, "-m", "unittest", "-v", *files]
    run = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert unbelieved(LogFormat.UNITTEST, run.stdout) is None
    lists = (json.loads(record[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    return resolve(*lists, worst(LogFormat.UNITTEST, run.stdout), run.returncode)
