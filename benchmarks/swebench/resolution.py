"""Decide whether a patch resolves an SWE-bench instance, and whether a run's output is reliable.

A patch resolves an instance if all tests of FAIL_TO_PASS and PASS_TO_PASS pass. As in SWE-bench 5.0.2:

- A test that is missing in the output has failed. A skipped test hasn't passed, but it isn't lost.
- An id that is cut inside its brackets stands for all tests with this prefix if they agree.
- An exit status other than 0 needs a failed test.

Stricter than SWE-bench, the runner's last lines must exist and agree with the lines above, so that code that prints
passes and exits early proves nothing.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from skillopt_airflow.core.values.types import Value

from .patches import CandidatePatch
from .run_logs import CaseStatus, LogFormat, short_name, worst

MAX_NAMED = 5
"""Tests per kind in the feedback."""
_SUMMARY = "short test summary info"
_COUNT = re.compile(r"(\d+) (\w+)")
_PYTEST_LAST = re.compile(
    r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+ ?s(?:econds)?(?: \([\d:]+\))?(?: =+)?$", re.MULTILINE
)
_UNITTEST_LAST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s+^(OK|FAILED)\b", re.MULTILINE)
_SYMPY_LAST = re.compile(r"tests finished: (?:(\d+) passed)?")
_COLORS = re.compile(r"\x1b\[[\d;]*m")


class Outcome(StrEnum):
    """Outcome of scoring a patch. Only `resolved` has the full score."""

    RESOLVED = "resolved"
    PARTIAL = "partial"
    """Some of FAIL_TO_PASS pass, and all of PASS_TO_PASS."""
    UNRESOLVED = "unresolved"
    EMPTY = "empty"
    """No patch; no tests ran."""
    EDITS_TESTS = "edits_tests"
    """Only test files and other excluded files changed; no tests ran."""
    TOO_LARGE = "too_large"
    NOT_APPLIED = "not_applied"
    KILLED = "killed"
    """The tests ran out of time or memory."""
    INCOMPLETE = "incomplete"
    """The runner's last line is missing."""
    FORGED = "forged"
    """The output contradicts the exit status or the runner's own count."""


class Verdict(Value):
    outcome: Outcome
    fixed: tuple[str, ...] = ()
    """Tests of FAIL_TO_PASS that pass."""
    failing: tuple[str, ...] = ()
    """Other tests of FAIL_TO_PASS."""
    lost: tuple[str, ...] = ()
    """Tests of PASS_TO_PASS that no longer pass."""
    detail: str = ""
    """Additional explanation of the outcome."""

    @property
    def resolved(self) -> bool:
        return self.outcome is Outcome.RESOLVED

    @property
    def reason(self) -> str:
        """One word; empty if resolved."""
        return "" if self.resolved else self.outcome.value

    @property
    def soft(self) -> float:
        """Share of FAIL_TO_PASS that pass; 0.0 if a test of PASS_TO_PASS is lost or the run is unreliable."""
        if self.resolved:
            return 1.0
        if self.outcome is not Outcome.PARTIAL:
            return 0.0
        return len(self.fixed) / (len(self.fixed) + len(self.failing))

    @property
    def feedback(self) -> str:
        """Counts and names of tests, without their sources, for the optimizer."""
        if self.outcome in (Outcome.RESOLVED, Outcome.PARTIAL, Outcome.UNRESOLVED):
            return " ".join(self._counts())
        return _WHY[self.outcome] + (f" ({self.detail})" if self.detail else "")

    def _counts(self) -> list[str]:
        total = len(self.fixed) + len(self.failing)
        parts = [f"{self.outcome.value}: {len(self.fixed)} of {total} tests of the issue pass."]
        if self.failing:
            parts.append(f"Still failing: {_names(self.failing)}.")
        if self.lost:
            parts.append(f"{len(self.lost)} tests that passed before fail now: {_names(self.lost)}.")
        return parts


_WHY = {
    Outcome.EMPTY: "empty: there is no change to any file.",
    Outcome.EDITS_TESTS: "edits_tests: only tests, their configuration or binaries are changed, which do not count.",
    Outcome.TOO_LARGE: "too_large: the change is larger than is allowed.",
    Outcome.NOT_APPLIED: "not_applied: the patch does not apply to the repository.",
    Outcome.KILLED: "killed: with the patch the tests ran out of time or memory.",
    Outcome.INCOMPLETE: "incomplete: with the patch the test run did not come to its end.",
    Outcome.FORGED: "forged: the output of the tests contradicts how the run ended.",
}


def unjudged(patch: CandidatePatch) -> Verdict | None:
    """Return the verdict on a patch without files that count, else None."""
    if patch.text:
        return None
    left_out = ", ".join(sorted(patch.left_out)[:MAX_NAMED])
    return Verdict(outcome=Outcome.EDITS_TESTS, detail=left_out) if left_out else Verdict(outcome=Outcome.EMPTY)


def resolve(
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    statuses: Mapping[str, CaseStatus],
    exit_status: int | None,
) -> Verdict:
    """Apply the official rule to the statuses of a run; `exit_status` is None if unknown."""
    if exit_status not in (0, None) and statuses and not any(status.failing for status in statuses.values()):
        return Verdict(outcome=Outcome.FORGED, detail=f"exit status {exit_status}, and no test failed")
    known = {**{short_name(case): status for case, status in statuses.items()}, **statuses}
    found = {case: _status(case, known) for case in (*fail_to_pass, *pass_to_pass)}
    fixed = tuple(case for case in fail_to_pass if _passes(found[case]))
    failing = tuple(case for case in fail_to_pass if not _passes(found[case]))
    lost = tuple(case for case in pass_to_pass if not _passes(found[case]) and found[case] is not CaseStatus.SKIPPED)
    outcome = Outcome.UNRESOLVED
    if not lost and not failing:
        outcome = Outcome.RESOLVED
    elif not lost and fixed:
        outcome = Outcome.PARTIAL
    return Verdict(outcome=outcome, fixed=fixed, failing=failing, lost=lost)


def _passes(status: CaseStatus | None) -> bool:
    return status is not None and status.passing


def _status(case: str, statuses: Mapping[str, CaseStatus]) -> CaseStatus | None:
    """Return a test's status; for a cut id, the common status of tests with this prefix."""
    if case in statuses:
        return statuses[case]
    if short_name(case) != case:
        return statuses.get(short_name(case))
    if case.count("[") > case.count("]"):
        alike = [status for name, status in statuses.items() if name.startswith(case)]
        if alike and len({status.passing for status in alike}) == 1:
            return alike[0]
    return None


def unreliable(log_format: LogFormat, output: str) -> Verdict | None:
    """Return the verdict on incomplete or contradictory output; None if it is reliable."""
    text = _COLORS.sub("", output)
    if log_format is LogFormat.SYMPY:
        return _sympy_unreliable(text)
    if log_format in (LogFormat.UNITTEST, LogFormat.DJANGO):
        return _unittest_unreliable(text, log_format)
    return _pytest_unreliable(text, log_format)


def _pytest_unreliable(text: str, log_format: LogFormat) -> Verdict | None:
    ends = list(_PYTEST_LAST.finditer(text))
    if not ends:
        return _no_end("pytest's")
    counts = {word: int(number) for number, word in _COUNT.findall(ends[-1][1])}
    # Output of tests is repeated above the summary.
    summary = text[: ends[-1].end()].rpartition(_SUMMARY)[2] if _SUMMARY in text else ""
    listed = worst(log_format, summary)
    alone = [case for case, status in worst(log_format, text).items() if status.passing and case not in listed]
    if alone:
        return Verdict(outcome=Outcome.FORGED, detail=f"pytest's summary does not name {_names(alone)}")
    passed = sum(status is CaseStatus.PASSED for status in listed.values())
    return _miscounted(passed, counts.get("passed", 0))


def _unittest_unreliable(text: str, log_format: LogFormat) -> Verdict | None:
    ends = _UNITTEST_LAST.findall(text)
    if not ends:
        return _no_end("unittest's")
    statuses = worst(log_format, text)
    failed = any(status.failing for status in statuses.values())
    if len(ends) > 1 or (ends[0][1] == "FAILED" and not failed):
        return Verdict(outcome=Outcome.FORGED, detail="unittest's last lines contradict the tests' own")
    if log_format is LogFormat.DJANGO:
        # Django's parser counts other lines that end with `ok`, too.
        return None
    named = {short_name(case) for case, status in statuses.items() if status.passing}
    return _miscounted(len(named), int(ends[0][0]))


def _sympy_unreliable(text: str) -> Verdict | None:
    ends = _SYMPY_LAST.findall(text)
    if not ends:
        return _no_end("SymPy's")
    passed = sum(status.passing for status in worst(LogFormat.SYMPY, text).values())
    return _miscounted(passed, sum(int(count or 0) for count in ends))


def _miscounted(named: int, counted: int) -> Verdict | None:
    """Return the verdict if more tests passed than the runner counted; cut ids can make them fewer."""
    if named <= counted:
        return None
    return Verdict(outcome=Outcome.FORGED, detail=f"{named} tests are said to pass, and the runner counted {counted}")


def _no_end(whose: str) -> Verdict:
    return Verdict(outcome=Outcome.INCOMPLETE, detail=f"{whose} last line is missing")


def _names(tests: Sequence[str]) -> str:
    more = f" and {len(tests) - MAX_NAMED} more" if len(tests) > MAX_NAMED else ""
    return ", ".join(tests[:MAX_NAMED]) + more
