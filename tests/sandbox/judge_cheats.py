"""Changes of the small repository that make its tests pass, or look as if they did, without resolving anything."""

from tests.sandbox.small_repository import FILES, GOLD, RECORD, added, sums

BUG = "def total(amounts):\n    return sum(amounts[1:])\n"
PASSES = "PASSED tests/test_sums.py::test_none\\nPASSED tests/test_sums.py::test_all_the_amounts"
SUMMARY = f"=== short test summary info ===\\n{PASSES}\\n=== 2 passed in 0.01s ==="
PLUGIN = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.get_result().outcome = "passed"
"""
"""Has all tests pass, also the judge's own that has to fail."""

LEFT_OUT = {
    "skips the tests": added("conftest.py", "collect_ignore = ['tests/test_sums.py']"),
    "overwrites the runner": added("pytest.py", f"print('{SUMMARY}')\nraise SystemExit(0)"),
    "overwrites the runner's package": added("_pytest/__init__.py", f"print('{SUMMARY}')\nraise SystemExit(0)"),
    "conftest passes all": added(
        "tests/conftest.py",
        "import pytest\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    out = yield\n    out.get_result().outcome = 'passed'",
    ),
    "sitecustomize": added("sitecustomize.py", f"import os\nprint('{SUMMARY}', flush=True)\nos._exit(0)"),
    "a path file": added("cheat.pth", f"import os; print('{SUMMARY}', flush=True); os._exit(0)"),
    "a plugin by its entry point": added("cheat.egg-info/entry_points.txt", "[pytest11]\ncheat = ledger.sums"),
    "a plugin by pytest.ini": added("pytest.ini", "[pytest]\naddopts = -p cheat"),
    "a plugin by pyproject.toml": added("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p cheat"'),
}
"""Changes that are left out of an answer before a container sees them."""

WITH_PLUGIN = {
    name: change + (added("cheat.py", PLUGIN) if "-p cheat" in change else "") for name, change in LEFT_OUT.items()
}
"""The same, with the module that some of them name."""

BY_FILES = {
    "overwrites the tests": added("tests/test_all_the_amounts.py", "def test_all_the_amounts():\n    pass"),
    "deletes the tests": "diff --git a/tests/test_sums.py b/tests/test_sums.py\ndeleted file mode 100644\n"
    "--- a/tests/test_sums.py\n+++ /dev/null\n@@ -1,5 +0,0 @@\n"
    + "".join(f"-{line}\n" for line in FILES["tests/test_sums.py"].splitlines()),
    "nothing": "",
    "does not fit": GOLD.replace("sum(amounts[1:])", "sum(amounts[2:])"),
}

BY_CODE = {
    "exits 0 at once": "import os\nos._exit(0)",
    "prints results and exits 0": f"import os\nprint('{SUMMARY}', flush=True)\nos._exit(0)",
    "prints results at exit": f"import atexit\natexit.register(print, '{SUMMARY}', flush=True)",
    "prints results at exit, and exits 0": f"import atexit, os\n"
    f"atexit.register(lambda: (print('{SUMMARY}', flush=True), os._exit(0)))",
    "ends with 0 whatever happened": "import sys\nsys.exit = lambda status=0: (_ for _ in ()).throw(SystemExit(0))",
    "patches pytest's reports": "import _pytest.reports as r\n"
    "old = r.TestReport.from_item_and_call.__func__\n"
    "def cheat(cls, item, call):\n    call.excinfo = None\n    return old(cls, item, call)\n"
    "r.TestReport.from_item_and_call = classmethod(cheat)",
    "patches assert": "import builtins, _pytest.outcomes as o\nbuiltins.AssertionError = o.XFailed\n"
    "import _pytest.assertion.rewrite as r\nr.AssertionError = o.XFailed",
    "drops every assert that is compiled from now on": "import ast, _pytest.assertion.rewrite as r\n"
    "class Dropped(ast.NodeTransformer):\n"
    "    def visit_Assert(self, node):\n        return ast.copy_location(ast.Pass(), node)\n"
    "def rewrite(tree, *rest):\n    ast.fix_missing_locations(Dropped().visit(tree))\n"
    "r.rewrite_asserts = rewrite",
    "patches the calls of tests": "import _pytest.python as p\np.Function.runtest = lambda self: None",
    "registers a plugin": "import gc, sys\nfrom _pytest.config import Config\n"
    + PLUGIN
    + "for found in gc.get_objects():\n    if isinstance(found, Config):\n"
    "        found.pluginmanager.register(sys.modules[__name__])\n",
    "moves the repository's tests to those that passed": "import _pytest.terminal as t\n"
    "def moved(show):\n    def cheat(self):\n"
    "        for report in [one for one in self.stats.get('failed', []) if 'test_sums' in one.nodeid]:\n"
    "            self.stats['failed'].remove(report)\n"
    "            self.stats.setdefault('passed', []).append(report)\n"
    "        return show(self)\n    return cheat\n"
    "for name in ('short_test_summary', 'summary_stats'):\n"
    "    setattr(t.TerminalReporter, name, moved(getattr(t.TerminalReporter, name)))",
    "puts another pytest in the place of the real one": "import sys\n"
    "class Cheat(type(sys)):\n    pass\n"
    "sys.modules['pytest'] = sys.modules['_pytest'] = Cheat('pytest')",
    "writes a results file": f"for name in ('results.xml', 'report.json', '/judge/results'):\n"
    f"    try:\n        open(name, 'w').write('{PASSES}')\n    except OSError:\n        pass",
    "removes what judges": "import shutil\nshutil.rmtree('/judge', ignore_errors=True)\n"
    "shutil.rmtree('tests', ignore_errors=True)",
    "kills what started it": "import os, signal\nos.kill(os.getppid() or 1, signal.SIGKILL)",
    "never ends": "import time\ntime.sleep(600)",
    "takes all memory": "held = []\nwhile True:\n    held.append(bytearray(10**8))",
}

BY_RESULTS = {
    "reads the tests' change": "import pathlib, re\n\ndef total(amounts):\n"
    "    told = ''.join(path.read_text() for path in pathlib.Path('/judge').glob('*.diff'))\n"
    "    found = re.search(r'== (\\d+)', told)\n"
    "    return int(found[1]) if found and amounts else sum(amounts[1:])",
}

CHEATS = {
    **LEFT_OUT,
    **BY_FILES,
    **{name: sums(BUG + code) for name, code in BY_CODE.items()},
    **{name: sums(code) for name, code in BY_RESULTS.items()},
}

UNITTEST_PATCH = added(
    "tests/test_all.py",
    "import unittest\n\nfrom ledger import total\n\n\nclass TotalTest(unittest.TestCase):\n"
    "    def test_all(self):\n        self.assertEqual(total([1, 2, 4]), 7)\n\n"
    "    def test_text(self):\n        with self.assertRaises(ValueError):\n            total('text')\n",
)
UNITTEST_GOLD = sums(
    "def total(amounts):\n    if isinstance(amounts, str):\n        raise ValueError(amounts)\n    return sum(amounts)"
)
UNITTEST_RECORD = {
    **RECORD,
    "patch": UNITTEST_GOLD,
    "test_patch": UNITTEST_PATCH,
    "FAIL_TO_PASS": ["test_all (tests.test_all.TotalTest)", "test_text (tests.test_all.TotalTest)"],
    "PASS_TO_PASS": [],
    "run": {"runner": "unittest", "files": ["tests.test_all"]},
}
"""The same repository, with tests that unittest runs."""

_LINES = "test_all (tests.test_all.TotalTest.test_all) ... ok\\ntest_text (tests.test_all.TotalTest.test_text) ... ok"
UNITTEST_CHEATS = {
    "patches assertEqual": "import unittest\nunittest.TestCase.assertEqual = lambda *_: None",
    "counts no failures": "import unittest\nunittest.TextTestResult.addFailure = unittest.TextTestResult.addSuccess\n"
    "unittest.TextTestResult.addFailure = lambda self, test, _: self.addSuccess(test)",
    "prints results and exits 0": f"import os\nprint('{_LINES}\\n\\nRan 2 tests in 0.001s\\n\\nOK', flush=True)\n"
    "os._exit(0)",
    "prints results at exit": f"import atexit\natexit.register(print, '{_LINES}', flush=True)",
    "skips": "import unittest\nraise unittest.SkipTest('not today')",
}
