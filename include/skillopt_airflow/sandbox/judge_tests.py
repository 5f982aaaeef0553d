"""The program that runs the tests in the judge's container: `python -s judge_tests.py RUNNER ROOTS ARGUMENT...`.

It imports the runner and its plugins before the repository is on Python's path, so no file there can replace them.
It runs with the repository's Python, which may be as old as 3.5.
"""

import os
import runpy
import sys
from importlib import import_module
from typing import Any, Callable, List  # noqa: UP035 - those of collections.abc take no arguments in an old Python

WORK = "/work"
DJANGO_TESTS = WORK + "/tests"


def main(runner: str, roots: str, arguments: List[str]) -> None:  # noqa: UP006 - as above
    # The folder of this program, which contains nothing to import.
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
            # The folder of its settings and its test packages.
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
    """Return a runner of pytest with the environment's plugins and none that the repository declares."""
    import pytest

    plugins = [point.load() for point in entry_points("pytest11")]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def run() -> object:
        options = ["-rA", "-p", "no:cacheprovider", "--tb=no", "--color=no"]
        return sys.exit(pytest.main(options + arguments, plugins=plugins))

    return run


def sympy_test() -> Any:
    # `sympy.test` isn't SymPy's own runner since 1.13.
    try:
        return import_module("sympy.testing.runtests").test
    except ImportError:
        return import_module("sympy").test


def entry_points(group: str) -> Any:
    try:
        metadata = import_module("importlib.metadata")
    except ImportError:
        # A requirement of pytest itself before Python 3.8.
        metadata = import_module("importlib_metadata")
    try:
        return metadata.entry_points(group=group)
    except TypeError:
        return metadata.entry_points().get(group, ())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
