"""The program that runs the tests in the judge's container: `python -P -s judge_tests.py RUNNER ROOTS ARGUMENT...`.

The runner and its plugins are imported before the repository is on Python's path, so that no file there is taken for
one of them. Nothing of the environment leads Python into the repository before this program does.
"""

import os
import runpy
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

WORK = "/work"


def main(runner: str, roots: str, arguments: list[str]) -> None:
    """Run the tests, and exit as the runner does."""
    if runner == "pytest":
        run = pytest_run(arguments)
    elif runner == "unittest":
        import unittest

        def run() -> object:
            return unittest.main(module=None, argv=["python -m unittest", "-v", *arguments])
    elif runner == "django":

        def run() -> object:
            sys.argv = ["runtests.py", "--verbosity=2", "--settings=test_sqlite", "--parallel=1", *arguments]
            return runpy.run_path("tests/runtests.py", run_name="__main__")
    else:

        def run() -> object:
            sympy = import_module("sympy")
            return sys.exit(not sympy.test(*arguments, verbose=True, colors=False, subprocess=False))

    paths = [WORK, *(os.path.normpath(f"{WORK}/{root}") for root in roots.split(":") if root)]
    os.environ["PYTHONPATH"] = ":".join(dict.fromkeys(paths))
    sys.path[0:0] = list(dict.fromkeys(paths))
    run()


def pytest_run(arguments: list[str]) -> Callable[[], object]:
    """Return what runs pytest with the plugins of the environment, and none that the repository declares."""
    import pytest

    plugins = [found.load() for found in entry_points(group="pytest11")]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def run() -> object:
        return sys.exit(pytest.main(["-rA", "-p", "no:cacheprovider", "--tb=no", *arguments], plugins=plugins))

    return run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
