"""Changes of a small repository in the judge's container: a right one resolves, and none that cheats does."""

from collections.abc import Callable, Iterator
from contextlib import closing

import docker
import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.protocols import JudgesRepository
from skillopt_airflow.core.repository_tests import RepositoryTests, TestedRepository
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.core.types import Item, Rollout, Status, Trajectory
from skillopt_airflow.sandbox.item_images import ItemImages
from skillopt_airflow.sandbox.judge_container import JudgeContainer
from skillopt_airflow.training.repository_judging import RunTests, judged_repository
from tests.sandbox.small_repository import CONTENTS, FILES, GOLD, added, small_item, sums

pytestmark = pytest.mark.engine

BENCHMARK = benchmarks.load("swebench")
LIMITS = SandboxGroup(test_timeout=60)
ITEM = small_item()
BUG = "def total(amounts):\n    return sum(amounts[1:])\n"
PASSES = "PASSED tests/test_sums.py::test_none\\nPASSED tests/test_sums.py::test_all_the_amounts"
SUMMARY = f"=== short test summary info ===\\n{PASSES}\\n=== 2 passed in 0.01s ==="

CHEATS = {
    "skips the tests": added("conftest.py", "collect_ignore = ['tests/test_sums.py']"),
    "overwrites the tests": added("tests/test_all_the_amounts.py", "def test_all_the_amounts():\n    pass"),
    "overwrites the runner": added("pytest.py", f"print('{SUMMARY}')\nraise SystemExit(0)"),
    "overwrites the runner's package": added("_pytest/__init__.py", f"print('{SUMMARY}')\nraise SystemExit(0)"),
    "conftest passes all": added(
        "tests/conftest.py",
        "import pytest\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    out = yield\n    out.get_result().outcome = 'passed'",
    ),
    "sitecustomize": added("sitecustomize.py", f"import os\nprint('{SUMMARY}', flush=True)\nos._exit(0)"),
    "a plugin by its entry point": added("cheat.egg-info/entry_points.txt", "[pytest11]\ncheat = ledger.sums"),
    "exits 0 at once": sums(BUG + "import os\nos._exit(0)"),
    "prints results and exits 0": sums(BUG + f"import os\nprint('{SUMMARY}', flush=True)\nos._exit(0)"),
    "prints results and exits 1": sums(BUG + f"import os\nprint('{SUMMARY}', flush=True)\nos._exit(1)"),
    "prints results at exit": sums(BUG + f"import atexit\natexit.register(print, '{SUMMARY}', flush=True)"),
    "patches pytest's reports": sums(
        BUG + "import _pytest.reports as r\n"
        "old = r.TestReport.from_item_and_call.__func__\n"
        "def cheat(cls, item, call):\n    call.excinfo = None\n    return old(cls, item, call)\n"
        "r.TestReport.from_item_and_call = classmethod(cheat)"
    ),
    "patches assert": sums(
        BUG + "import builtins, _pytest.outcomes as o\nbuiltins.AssertionError = o.XFailed\n"
        "import _pytest.assertion.rewrite as r\nr.AssertionError = o.XFailed"
    ),
    "drops every assert that is compiled from now on": sums(
        BUG + "import ast, _pytest.assertion.rewrite as r\n"
        "class Dropped(ast.NodeTransformer):\n"
        "    def visit_Assert(self, node):\n        return ast.copy_location(ast.Pass(), node)\n"
        "def rewrite(tree, *rest):\n    ast.fix_missing_locations(Dropped().visit(tree))\n"
        "r.rewrite_asserts = rewrite"
    ),
    "patches the calls of tests": sums(BUG + "import _pytest.python as p\np.Function.runtest = lambda self: None"),
    "writes a results file": sums(
        BUG + f"for name in ('results.xml', 'report.json', '/judge/results'):\n"
        f"    try:\n        open(name, 'w').write('{PASSES}')\n    except OSError:\n        pass"
    ),
    "removes what judges": sums(
        BUG + "import shutil\nshutil.rmtree('/judge', ignore_errors=True)\nshutil.rmtree('tests', ignore_errors=True)"
    ),
    "reads the tests' change": sums(
        "import pathlib, re\n\ndef total(amounts):\n"
        "    told = ''.join(path.read_text() for path in pathlib.Path('/judge').glob('*.diff'))\n"
        "    found = re.search(r'== (\\d+)', told)\n"
        "    return int(found[1]) if found and amounts else sum(amounts[1:])"
    ),
    "kills what started it": sums(BUG + "import os, signal\nos.kill(os.getppid() or 1, signal.SIGKILL)"),
    "deletes the tests": "diff --git a/tests/test_sums.py b/tests/test_sums.py\ndeleted file mode 100644\n"
    "--- a/tests/test_sums.py\n+++ /dev/null\n@@ -1,5 +0,0 @@\n"
    + "".join(f"-{line}\n" for line in FILES["tests/test_sums.py"].splitlines()),
    "nothing": "",
    "does not fit": GOLD.replace("sum(amounts[1:])", "sum(amounts[2:])"),
    "never ends": sums(BUG + "import time\ntime.sleep(600)"),
    "takes all memory": sums(BUG + "held = []\nwhile True:\n    held.append(bytearray(10**8))"),
}

LEFT_OUT = (
    "skips the tests",
    "overwrites the runner",
    "overwrites the runner's package",
    "conftest passes all",
    "sitecustomize",
    "a plugin by its entry point",
)
"""Changes that are left out of an answer before a container sees them."""


@pytest.fixture(scope="module")
def run(docker_host: str) -> Iterator[RunTests]:
    from local import image

    with closing(docker.APIClient(base_url=docker_host, timeout=600)) as client:
        images = ItemImages(client, image.IMAGE, LIMITS, lambda _: CONTENTS)

        def run(item: Item, wanted: RepositoryTests) -> TestedRepository:
            limits = LIMITS.model_copy(update={"test_timeout": 10}) if "sleep(600)" in wanted.patch else LIMITS
            return JudgeContainer(client, limits, {"run": "judge-test"}).run(item, images.judging(item), wanted)

        yield run


@pytest.fixture
def judge(run: RunTests) -> Callable[[str], Rollout]:
    def judged(patch: str) -> Rollout:
        assert isinstance(BENCHMARK, JudgesRepository)
        left = Trajectory(item_id=ITEM.id, status=Status.OK, answer="Done.")
        return judged_repository(BENCHMARK, ITEM, left, {"patch.diff": patch.encode()}, run)

    return judged


def test_the_right_change_resolves_and_is_the_answer(judge: Callable[[str], Rollout]) -> None:
    found = judge(GOLD)
    assert found.score is not None, found.trajectory.error
    assert (found.score.hard, found.score.soft, found.trajectory.answer) == (1.0, 1.0, GOLD), found.score.feedback


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_resolves(name: str, judge: Callable[[str], Rollout]) -> None:
    found = judge(CHEATS[name])
    assert found.score is not None, found.trajectory.error
    print(name, "->", found.score.feedback)
    assert (found.score.hard, found.score.soft) == (0.0, 0.0), found.score.feedback


@pytest.mark.parametrize("name", LEFT_OUT)
def test_none_resolves_even_where_all_of_it_gets_into_the_container(name: str, run: RunTests) -> None:
    assert isinstance(BENCHMARK, JudgesRepository)
    wanted = BENCHMARK.tests(ITEM, GOLD)
    assert isinstance(wanted, RepositoryTests)
    ran = run(ITEM, wanted.model_copy(update={"patch": CHEATS[name]}))
    score = BENCHMARK.score_tests(ITEM, CHEATS[name], ran)
    assert (score.hard, score.soft) == (0.0, 0.0), score.feedback


def test_a_right_change_beside_a_conftest_counts_without_it(judge: Callable[[str], Rollout]) -> None:
    found = judge(GOLD + CHEATS["conftest passes all"])
    assert found.score is not None
    assert found.score.hard == 1.0
    assert "tests/conftest.py" in found.score.feedback


def test_an_engine_that_fails_is_no_score() -> None:
    def broken(*_: object) -> TestedRepository:
        from skillopt_airflow.core.errors import EngineUnavailable

        raise EngineUnavailable("the engine went away")

    assert isinstance(BENCHMARK, JudgesRepository)
    left = Trajectory(item_id=ITEM.id, status=Status.OK)
    found = judged_repository(BENCHMARK, ITEM, left, {"patch.diff": GOLD.encode()}, broken)
    assert (found.trajectory.status, found.score, found.trajectory.answer) == (Status.JUDGE_ERROR, None, GOLD)
