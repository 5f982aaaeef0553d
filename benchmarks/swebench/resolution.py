"""Decide whether a patch resolves an instance of SWE-bench by the official rule, and whether to believe a run's output.

Resolved is a patch with which all tests of FAIL_TO_PASS and PASS_TO_PASS pass. As in SWE-bench 5.0.2 a test that the
output does not name has failed, a skipped test has not passed but is not lost by that, an id that was cut inside its
brackets stands for all tests that begin so if they agree, and an exit status other than 0 needs a failed test that
explains it. Stricter than there: the runner's own last lines have to be there and to agree with what is above them, so
that code of the tree that prints passes and leaves early has shown nothing.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from skillopt_airflow.core.values.types import Value

from .patches import CandidatePatch
from .run_logs import CaseStatus, LogFormat, short_name, worst

MAX_NAMED = 5
"""Tests that the feedback names, of each kind."""
_SUMMARY = "short test summary info"
_COUNT = re.compile(r"(\d+) (\w+)")
_PYTEST_LAST = re.compile(
    r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+ ?s(?:econds)?(?: \([\d:]+\))?(?: =+)?$", re.MULTILINE
)
_UNITTEST_LAST = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s+^(OK|FAILED)\b", re.MULTILINE)
_SYMPY_LAST = re.compile(r"tests finished: (?:(\d+) passed)?")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Outcome(StrEnum):
    """The outcome of judging a patch. Only `resolved` is a full score."""

    RESOLVED = "resolved"
    PARTIAL = "partial"
    """Some of FAIL_TO_PASS pass, and all of PASS_TO_PASS."""
    UNRESOLVED = "unresolved"
    EMPTY = "empty"
    """There is no patch; nothing ran."""
    EDITS_TESTS = "edits_tests"
    """All that the patch changes belongs to the judge; nothing ran."""
    TOO_LARGE = "too_large"
    NOT_APPLIED = "not_applied"
    KILLED = "killed"
    """The tests ran out of time or memory."""
    INCOMPLETE = "incomplete"
    """The runner's last line is missing."""
    FORGED = "forged"
    """The output contradicts the exit status or the runner's own count."""


class Verdict(Value):
    """The worth of a patch, and the reason."""

    outcome: Outcome
    fixed: tuple[str, ...] = ()
    """Tests of FAIL_TO_PASS that pass."""
    failing: tuple[str, ...] = ()
    """The others of FAIL_TO_PASS."""
    lost: tuple[str, ...] = ()
    """Tests of PASS_TO_PASS that no longer pass."""
    detail: str = ""
    """What contradicts what, for an outcome that needs it."""

    @property
    def resolved(self) -> bool:
        """Return the hard score."""
        return self.outcome is Outcome.RESOLVED

    @property
    def reason(self) -> str:
        """Return why it is not resolved, in one word; empty if it is."""
        return "" if self.resolved else self.outcome.value

    @property
    def soft(self) -> float:
        """Return the share of FAIL_TO_PASS that pass, 0.0 if a test of PASS_TO_PASS is lost or nothing was shown."""
        if self.resolved:
            return 1.0
        if self.outcome is not Outcome.PARTIAL:
            return 0.0
        return len(self.fixed) / (len(self.fixed) + len(self.failing))

    @property
    def feedback(self) -> str:
        """Return what the optimizer reads: counts and names of tests, never their sources."""
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
    """Return the verdict on a patch for which no tests need to run; None if they do."""
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
    """Apply the official rule to the statuses of a run; exit_status is None where it is not known."""
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
    """Return a test's status; of an id that was cut inside its brackets that of all that begin so, if they agree."""
    if case in statuses:
        return statuses[case]
    if short_name(case) != case:
        return statuses.get(short_name(case))
    if case.count("[") > case.count("]"):
        alike = [status for name, status in statuses.items() if name.startswith(case)]
        if alike and len({status.passing for status in alike}) == 1:
            return alike[0]
    return None


def unbelieved(log_format: LogFormat, output: str) -> Verdict | None:
    """Return the verdict on output whose runner did not finish, or counted fewer passes; None if it is believed."""
    text = _COLOURS.sub("", output)
    if log_format is LogFormat.SYMPY:
        return _sympy_unbelieved(text)
    if log_format in (LogFormat.UNITTEST, LogFormat.DJANGO):
        return _unittest_unbelieved(text, log_format)
    return _pytest_unbelieved(text, log_format)


def _pytest_unbelieved(text: str, log_format: LogFormat) -> Verdict | None:
    ends = list(_PYTEST_LAST.finditer(text))
    if not ends:
        return _no_end("pytest's")
    counts = {word: int(number) for number, word in _COUNT.findall(ends[-1][1])}
    # What a test printed is repeated above the summary.
    summary = text[: ends[-1].end()].rpartition(_SUMMARY)[2] if _SUMMARY in text else ""
    listed = worst(log_format, summary)
    alone = [case for case, status in worst(log_format, text).items() if status.passing and case not in listed]
    if alone:
        return Verdict(outcome=Outcome.FORGED, detail=f"pytest's summary does not name {_names(alone)}")
    passed = sum(status is CaseStatus.PASSED for status in listed.values())
    return _miscounted(passed, counts.get("passed", 0))


def _unittest_unbelieved(text: str, log_format: LogFormat) -> Verdict | None:
    ends = _UNITTEST_LAST.findall(text)
    if not ends:
        return _no_end("unittest's")
    statuses = worst(log_format, text)
    failed = any(status.failing for status in statuses.values())
    if len(ends) > 1 or (ends[0][1] == "FAILED" and not failed):
        return Verdict(outcome=Outcome.FORGED, detail="unittest's last lines contradict the tests' own")
    if log_format is LogFormat.DJANGO:
        # Its reader takes other lines that end in `ok` for tests, too.
        return None
    named = {short_name(case) for case, status in statuses.items() if status.passing}
    return _miscounted(len(named), int(ends[0][0]))


def _sympy_unbelieved(text: str) -> Verdict | None:
    ends = _SYMPY_LAST.findall(text)
    if not ends:
        return _no_end("SymPy's")
    passed = sum(status.passing for status in worst(LogFormat.SYMPY, text).values())
    return _miscounted(passed, sum(int(count or 0) for count in ends))


def _miscounted(named: int, counted: int) -> Verdict | None:
    """Return the verdict where the lines name more passes than the runner counted; ids that were cut may be fewer."""
    if named <= counted:
        return None
    return Verdict(outcome=Outcome.FORGED, detail=f"{named} tests are said to pass, and the runner counted {counted}")


def _no_end(whose: str) -> Verdict:
    return Verdict(outcome=Outcome.INCOMPLETE, detail=f"{whose} last line is missing")


def _names(tests: Sequence[str]) -> str:
    more = f" and {len(tests) - MAX_NAMED} more" if len(tests) > MAX_NAMED else ""
    return ", ".join(tests[:MAX_NAMED]) + more
