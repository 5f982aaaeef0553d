"""Real repositories in the judge's container: the gold patch resolves each instance, and no change none.

Their images take minutes and their packages hundreds of megabytes, so they run if SKILLOPT_TEST_PROVIDER is set.
SKILLOPT_SWEBENCH names a folder of instance folders; benchmarks/swebench/README.md describes one. Django and SymPy,
whose tests have runners of their own, are releases from PyPI with one fault.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from benchmarks.swebench.instance_folder import archive, git_diff
from benchmarks.swebench.official import official_run
from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item, JsonObject, Score, Status, Trajectory
from skillopt_airflow.sandbox.docker.item_images import ItemImages
from skillopt_airflow.sandbox.judge_container import JudgeContainer
from skillopt_airflow.tasks.protocols import JudgesRepository
from skillopt_airflow.tasks.repository_tests import PATCH_FILE, RepositoryTestRun, RepositoryTests
from skillopt_airflow.training.rollouts.judging import score_repository
from tests.sandbox.small_repository import added, with_hashes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.provider,
    pytest.mark.skipif(not os.environ.get("SKILLOPT_TEST_PROVIDER"), reason="SKILLOPT_TEST_PROVIDER is not set"),
]
FOLDER = Path(os.environ.get("SKILLOPT_SWEBENCH", "/nowhere"))
FILES = ("repo.tar.gz", "requirements.txt")
LIMITS = SandboxGroup(memory="2g")


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(base_url=docker_host, timeout=600)) as client:
        yield client


def record_of(folder: Path) -> JsonObject:
    run: JsonObject = json.loads((folder / "run.json").read_text())
    record: JsonObject = json.loads((folder / "instance.json").read_text())
    return {**record, "instance": folder.name, "run": run}


def judged(client: docker.APIClient, item: Item, patch: str, contents: Mapping[str, bytes]) -> Score:
    benchmark = benchmarks.load("swebench")
    assert isinstance(benchmark, JudgesRepository)
    tag = ItemImages(client, image.IMAGE, LIMITS, lambda _: contents).target_image(item)

    def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        return JudgeContainer(client, LIMITS, {"run": "runnable"}).run(item, tag, wanted)

    left = Trajectory(item_id=item.id, status=Status.OK)
    score = score_repository(benchmark, item, left, {PATCH_FILE: patch.encode()}, run).score
    assert score is not None
    return score


def scores(
    client: docker.APIClient, record: JsonObject, contents: Mapping[str, bytes], *others: str
) -> tuple[float, ...]:
    """How the right change, none, one of no use and others are judged."""
    item = with_hashes(benchmarks.load("swebench").item(record), dict(contents))
    patches = (str(record["patch"]), "", added("of_no_use.py", "NOTE = 1"), *others)
    found = [judged(client, item, patch, contents) for patch in patches]
    print(item.id, *(score.feedback for score in found), sep="\n  ")
    return tuple(score.hard for score in found)


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"SKILLOPT_SWEBENCH: {FOLDER} is not there")
def test_gold_resolves_every_instance_and_nothing_none(client: docker.APIClient) -> None:
    def of(folder: Path) -> tuple[float, ...]:
        return scores(client, record_of(folder), {name: (folder / name).read_bytes() for name in FILES})

    folders = sorted(path.parent for path in FOLDER.glob("*/run.json"))
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(folders, pool.map(of, folders), strict=True))
    assert found
    assert set(found.values()) == {(1.0, 0.0, 0.0)}, found


@dataclass(frozen=True)
class Fault:
    """One wrong line in a release, and the test that shows it."""

    release: str
    repo: str
    requirements: str
    file: str
    right: str
    wrong: str
    tests: str
    shown_by: str
    still_passes: str
    cheats: str
    """A file that is changed to have the tests pass, or look so."""
    before: str
    after: str


FAULTS = (
    Fault(
        release="Django==4.2.16",
        repo="django/django",
        requirements="asgiref==3.8.1\nsqlparse==0.5.1\n",
        file="django/utils/text.py",
        right='return re.sub(r"[-\\s]+", "-", value).strip("-_")',
        wrong='return re.sub(r"[-\\s]+", "-", value).strip("-")',
        tests="tests/utils_tests/test_text.py",
        shown_by="test_slugify (utils_tests.test_text.TestUtilsText.test_slugify)",
        still_passes="test_wrap (utils_tests.test_text.TestUtilsText.test_wrap)",
        cheats="django/utils/text.py",
        before="import re\n",
        after="""import re
import unittest

_old = unittest.TestCase.assertEqual
unittest.TestCase.assertEqual = (
    lambda self, *rest: None if type(self).__module__ == "utils_tests.test_text" else _old(self, *rest)
)
""",
    ),
    Fault(
        release="sympy==1.13.3",
        repo="sympy/sympy",
        requirements="mpmath==1.3.0\n",
        file="sympy/utilities/misc.py",
        right="elif k % 10 == 3:",
        wrong="elif k % 10 == 4:",
        tests="sympy/utilities/tests/test_misc.py",
        shown_by="test_ordinal",
        still_passes="test_translate",
        cheats="sympy/testing/runtests.py",
        before="    def test_fail(self, exc_info):\n",
        after="""    def test_fail(self, exc_info):
        if self._active_file.endswith("test_misc.py"):
            return self.test_pass()
""",
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.repo for fault in FAULTS])
def test_runners_of_projects_of_their_own(fault: Fault, client: docker.APIClient, tmp_path: Path) -> None:
    tree = released(fault.release, tmp_path)
    right, tests = (tree[path].decode() for path in (fault.file, fault.tests))
    assert right.count(fault.right) == 1
    wrong = right.replace(fault.right, fault.wrong)
    record: JsonObject = {
        "instance_id": f"{fault.repo.replace('/', '__')}-1",
        "repo": fault.repo,
        "patch": git_diff(fault.file, wrong, right),
        "test_patch": git_diff(fault.tests, tests, tests + "# Judged.\n"),
        "problem_statement": "A fault.",
        "FAIL_TO_PASS": [fault.shown_by],
        "PASS_TO_PASS": [fault.still_passes],
        "instance": "one",
    }
    contents = {
        "repo.tar.gz": archive({**tree, fault.file: wrong.encode()}),
        "requirements.txt": fault.requirements.encode(),
    }
    cheated = wrong if fault.cheats == fault.file else tree[fault.cheats].decode()
    assert cheated.count(fault.before) == 1
    cheat = git_diff(fault.cheats, cheated, cheated.replace(fault.before, fault.after))
    assert scores(client, {**record, "run": official_run(record)}, contents, cheat) == (1.0, 0.0, 0.0, 0.0)


def released(release: str, folder: Path) -> dict[str, bytes]:
    """The files of a source distribution, by their paths."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    subprocess.run([*command, "--disable-pip-version-check", "--dest", str(folder), release], check=True)
    (found,) = folder.glob("*.tar.gz")
    with tarfile.open(found) as tar:
        members = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar if member.isfile()}
        return {path: file.read() for path, file in members.items() if file is not None}
