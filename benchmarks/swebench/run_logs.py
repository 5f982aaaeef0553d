"""Parse test statuses from the output of pytest, unittest, Django, and SymPy.

The rules are those of SWE-bench's parsers (`swebench/harness/log_parsers/python.py` of 5.0.2), which wrote the ids of
its instances. The parser for unittest is new.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import pairwise


class LogFormat(StrEnum):
    PYTEST = "pytest"
    """Ids are cut at the first space, as in the lists of most repositories."""
    PYTEST_OPTIONS = "pytest_options"
    """Like `pytest`, with absolute paths in parameters cut to the last part."""
    PYTEST_V2 = "pytest_v2"
    """Ids keep spaces, colors are removed, and the status can be at the end of the line."""
    MATPLOTLIB = "matplotlib"
    SEABORN = "seaborn"
    UNITTEST = "unittest"
    """Ids are `test (module.Class)` for all Python versions."""
    DJANGO = "django"
    SYMPY = "sympy"


class CaseStatus(StrEnum):
    PASSED = "PASSED"
    XFAIL = "XFAIL"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    ERROR = "ERROR"

    @property
    def passing(self) -> bool:
        return self in (CaseStatus.PASSED, CaseStatus.XFAIL)

    @property
    def failing(self) -> bool:
        """True if the run must have a nonzero exit status."""
        return self in (CaseStatus.FAILED, CaseStatus.ERROR)


FORMATS = {
    "astropy/astropy": LogFormat.PYTEST_V2,
    "django/django": LogFormat.DJANGO,
    "matplotlib/matplotlib": LogFormat.MATPLOTLIB,
    "mwaskom/seaborn": LogFormat.SEABORN,
    "psf/requests": LogFormat.PYTEST_OPTIONS,
    "pydicom/pydicom": LogFormat.PYTEST_OPTIONS,
    "pylint-dev/pylint": LogFormat.PYTEST_OPTIONS,
    "scikit-learn/scikit-learn": LogFormat.PYTEST_V2,
    "sphinx-doc/sphinx": LogFormat.PYTEST_V2,
    "sympy/sympy": LogFormat.SYMPY,
}
"""Formats by repository; the default is `pytest`."""

CaseResult = tuple[str, CaseStatus]
_STATUSES = tuple(CaseStatus)
_SKIPS = re.compile(r"\[\d+\]")
"""pytest's count of skips, which names no test: `SKIPPED [1] tests/test_a.py:12: needs network`."""
_COLOR = re.compile(r"\[(\d+)m")
_CONTROL = str.maketrans("", "", "".join(map(chr, range(1, 32))))
_DOTTED = re.compile(r"(\w+) \(([\w.<>]+)\)(?: .*)?")
_UNITTEST_END = re.compile(
    r"(?:(?P<text>.*) \.\.\. ?)?(?:(?P<ok>ok)|(?P<skipped>skipped\b.*)|(?P<xfail>expected failure)|(?P<bad>FAIL|ERROR)"
    r"|(?P<unexpected>unexpected success))"
)
_DJANGO_PROCESSES = re.compile(r"\s\.\.\.\sTesting against Django installed in ")
_DJANGO_SILENCED = re.compile(r" silenced\)\.\nok$", re.MULTILINE)
_DJANGO_SERVER = re.compile(r"\s\.\.\.\sInternal Server Error: /(?=.)")
_DJANGO_CHECK = re.compile(r"\s\.\.\.\sSystem check identified no issues \(0 silenced\)\Z")
"""Output of Django's tests between a test's name and its `ok`."""
_SUBTEST = "SUBFAILED"
_DJANGO_VERSION = "--version is equivalent to version"


def parsed(log_format: LogFormat, text: str) -> dict[str, CaseStatus]:
    """Return statuses by test id; the last one counts, as in SWE-bench."""
    return dict(_READERS[log_format](text))


def worst(log_format: LogFormat, text: str) -> dict[str, CaseStatus]:
    """Return statuses by test id; the worst one counts, so that forged lines can't add passes."""
    statuses: dict[str, CaseStatus] = {}
    for case, status in _READERS[log_format](text):
        statuses[case] = max(statuses.get(case, status), status, key=_STATUSES.index)
    return statuses


def short_name(case: str) -> str:
    """Return `test (module.Class)` for `test (module.Class.test)` of Python 3.11 and later."""
    name = re.fullmatch(r"(\w+) \(([\w.<>]+)\.\1\)", case)
    return f"{name[1]} ({name[2]})" if name else case


def _pytest(text: str, rewrite: Callable[[str], str] = str) -> Iterator[CaseResult]:
    for line in text.split("\n"):
        yield from _failed_subtests(line)
        if line.startswith(_STATUSES):
            words = line.replace(" - ", " ").split() if line.startswith(CaseStatus.FAILED) else line.split()
            if len(words) > 1 and words[0] in _STATUSES and not _skip_count(words):
                yield rewrite(words[1]), CaseStatus(words[0])


def _failed_subtests(line: str) -> Iterator[CaseResult]:
    """Yield the tests of a failed subtest, because pytest also reports PASSED for them."""
    if line.startswith(_SUBTEST):
        yield from ((word, CaseStatus.FAILED) for word in line.split() if "::" in word)


def _skip_count(words: list[str]) -> bool:
    return words[0] == CaseStatus.SKIPPED and _SKIPS.fullmatch(words[1]) is not None


def _without_folder(case: str) -> str:
    name, _, rest = case.partition("[")
    option, closed, _ = rest.rpartition("]")
    if not closed:
        return case
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rpartition("/")[2]
    return f"{name}[{option}]"


def _pytest_options(text: str) -> Iterator[CaseResult]:
    return _pytest(text, _without_folder)


def _matplotlib(text: str) -> Iterator[CaseResult]:
    return _pytest(text.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def _pytest_v2(text: str) -> Iterator[CaseResult]:
    for raw in text.split("\n"):
        line = _COLOR.sub("", raw).translate(_CONTROL)
        yield from _failed_subtests(line)
        if line.startswith(_STATUSES):
            words = (line.split(" - ", 1)[0] if line.startswith(CaseStatus.FAILED) else line).split()
            if len(words) > 1 and words[0] in _STATUSES and not _skip_count(words):
                yield " ".join(words[1:]), CaseStatus(words[0])
        elif line.endswith(_STATUSES):
            words = line.split()
            if len(words) > 1 and words[-1] in _STATUSES:
                yield " ".join(words[:-1]), CaseStatus(words[-1])


def _seaborn(text: str) -> Iterator[CaseResult]:
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith(CaseStatus.FAILED):
            yield words[1], CaseStatus.FAILED
        elif f" {CaseStatus.PASSED} " in line:
            if words[1] == CaseStatus.PASSED:
                yield words[0], CaseStatus.PASSED
        elif line.startswith(CaseStatus.PASSED):
            yield words[1], CaseStatus.PASSED


def _unittest(text: str) -> Iterator[CaseResult]:
    """Parse `test (m.T.test) ... ok`, with text in between, and the headers of tracebacks."""
    pending = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith(("FAIL: ", "ERROR: ")):
            kind, _, case = line.partition(": ")
            if name := _DOTTED.fullmatch(case):
                yield _named(name), CaseStatus.FAILED if kind == "FAIL" else CaseStatus.ERROR
            continue
        name = _DOTTED.match(line.partition(" ... ")[0].removesuffix(" ..."))
        pending = _named(name) if name and (" ..." in line or name[0] == line) else pending
        if pending and (ended := _UNITTEST_END.fullmatch(line)):
            yield pending, _ended(ended)


def _named(name: re.Match[str]) -> str:
    return short_name(f"{name[1]} ({name[2]})")


def _ended(line: re.Match[str]) -> CaseStatus:
    if line["bad"]:
        return CaseStatus.FAILED if line["bad"] == "FAIL" else CaseStatus.ERROR
    if line["unexpected"]:
        return CaseStatus.FAILED
    if line["skipped"]:
        return CaseStatus.SKIPPED
    return CaseStatus.XFAIL if line["xfail"] else CaseStatus.PASSED


def _django(text: str) -> Iterator[CaseResult]:
    pending: str | None = None
    for raw in text.split("\n"):
        line = raw.strip()
        if _DJANGO_VERSION in line:
            yield _DJANGO_VERSION, CaseStatus.PASSED
        if " ... " in line:
            pending = line.split(" ... ")[0]
        yield from _django_line(line)
        if line.startswith("ok") and pending is not None:
            yield pending, CaseStatus.PASSED
    yield from ((case, CaseStatus.PASSED) for case in _django_after_output(text))


def _django_after_output(text: str) -> Iterator[str]:
    """Yield the tests whose `ok` is on a separate line after their output."""
    place = 0
    while (begun := _DJANGO_PROCESSES.search(text, place)) and (ended := _DJANGO_SILENCED.search(text, begun.end())):
        yield text[text.rfind("\n", 0, begun.start()) + 1 : begun.start()]
        place = ended.end()
    for line, following in pairwise(text.split("\n")):
        if following == "ok" and (match := _DJANGO_CHECK.search(line) or _server_error(line)):
            yield line[: match.start()]


def _server_error(line: str) -> re.Match[str] | None:
    return _DJANGO_SERVER.search(line) if line.endswith("/") else None


def _django_line(line: str) -> Iterator[CaseResult]:
    for suffix in (" ... ok", " ... OK", " ...  OK"):
        if line.endswith(suffix):
            if line.startswith("Applying sites.0002_alter_domain_unique...test_no_migrations"):
                line = line.split("...", 1)[-1].strip()
            yield line.rsplit(suffix, 1)[0], CaseStatus.PASSED
            break
    if " ... skipped" in line:
        yield line.split(" ... skipped")[0], CaseStatus.SKIPPED
    for word, status in (("FAIL", CaseStatus.FAILED), ("ERROR", CaseStatus.ERROR)):
        if line.endswith(f" ... {word}"):
            yield line.split(f" ... {word}")[0], status
        if line.startswith(f"{word}:") and len(line.split()) > 1:
            yield line.split()[1], status


def _sympy(text: str) -> Iterator[CaseResult]:
    for raw in text.split("\n"):
        # The heading of a traceback: `____ sympy/core/tests/test_a.py:test_b ____`.
        heading = raw.partition(" ")[2].rpartition(" ")[0]
        if ".py:" in heading:
            yield heading, CaseStatus.FAILED
        line = raw.strip()
        if line.startswith("test_"):
            for end, status in ((" E", CaseStatus.ERROR), (" F", CaseStatus.FAILED), (" ok", CaseStatus.PASSED)):
                if line.endswith(end):
                    yield line.split()[0], status


_READERS: Mapping[LogFormat, Callable[[str], Iterator[CaseResult]]] = {
    LogFormat.PYTEST: _pytest,
    LogFormat.PYTEST_OPTIONS: _pytest_options,
    LogFormat.PYTEST_V2: _pytest_v2,
    LogFormat.MATPLOTLIB: _matplotlib,
    LogFormat.SEABORN: _seaborn,
    LogFormat.UNITTEST: _unittest,
    LogFormat.DJANGO: _django,
    LogFormat.SYMPY: _sympy,
}
