"""The program that runs the tests in the judge's container: `python -s judge_tests.py RUNNER ROOTS ARGUMENT...`.

The runner and its plugins are imported before the repository is on Python's path, so that no file there is taken for
one of them. Nothing of the environment leads Python into the repository before this program does. It runs with the
repository's own Python, which may be as old as 3.5.
"""

import os
import runpy
import sys
from importlib import import_module
from typing import Any, Callable, List  # noqa: UP035 - those of collections.abc take no arguments in an old Python

WORK = "/work"
DJANGO_TESTS = WORK + "/tests"


def main(runner: str, roots: str, arguments: List[str]) -> None:  # noqa: UP006 - as above
    """Run the tests, and exit as the runner does."""
    # The folder of this program, which has nothing to import.
    del sys.path[0]
    if runner == "pytest":
        run = pytest_run(arguments)
    elif runner == "unittest":
        import unittest

        def run() -> object:
            return unittest.main(module=None, argv=["python -m unittest", "-v"] + arguments)  # noqa: RUF005 - as above
    elif runner == "django":
        options = ["--verbosity=2", "--settings=test_sqlite", "--parallel=1"]

        def run() -> object:
            sys.argv = ["runtests.py"] + options + arguments  # noqa: RUF005 - as above
            # Where its settings lie, and the tests as packages.
            sys.path.insert(0, DJANGO_TESTS)
            return runpy.run_path(DJANGO_TESTS + "/runtests.py", run_name="__main__")
    else:

        def run() -> object:
            return sys.exit(not sympy_test()(*arguments, verbose=True, colors=False, subprocess=False))

    paths = [WORK] + [os.path.normpath(WORK + "/" + root) for root in roots.split(":") if root]
    paths = sorted(set(paths), key=paths.index)
    os.environ["PYTHONPATH"] = ":".join(paths)
    sys.path[0:0] = paths
    run()


def pytest_run(arguments: List[str]) -> Callable[[], object]:  # noqa: UP006 - as above
    """Return what runs pytest with the plugins of the environment, and none that the repository declares."""
    import pytest

    plugins = [found.load() for found in declared("pytest11")]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def run() -> object:
        options = ["-rA", "-p", "no:cacheprovider", "--tb=no", "--color=no"]
        return sys.exit(pytest.main(options + arguments, plugins=plugins))

    return run


def sympy_test() -> Any:
    """Return SymPy's own runner, which `sympy.test` is no more since 1.13."""
    try:
        return import_module("sympy.testing.runtests").test
    except ImportError:
        return import_module("sympy").test


def declared(group: str) -> Any:
    try:
        metadata = import_module("importlib.metadata")
    except ImportError:
        # What pytest itself needs before Python 3.8.
        metadata = import_module("importlib_metadata")
    try:
        return metadata.entry_points(group=group)
    except TypeError:
        return metadata.entry_points().get(group, ())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
