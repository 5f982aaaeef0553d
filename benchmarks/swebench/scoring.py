"""The tests for a change of a repository, and the score from their output."""

from collections.abc import Sequence

from skillopt_airflow.core.values.types import Item, JsonObject, Score
from skillopt_airflow.tasks.repository_tests import MAX_PATCH_BYTES, RepositoryTestRun, RepositoryTests, RunEnd

from .patches import CandidatePatch, candidate_patch, touched_paths
from .resolution import Outcome, Verdict, resolve, unjudged, unreliable
from .run_logs import FORMATS, CaseStatus, LogFormat, worst

ELSEWHERE = "It changes none of the files that the recorded patch changes."
"""Appended to the feedback of a resolving change, to count such changes."""


def tests_of(item: Item, patch: str, run: JsonObject) -> RepositoryTests | Score:
    """Return the tests for a change, or its score if no part of it counts.

    Args:
        item: has the test patch in its reference.
        patch: the target's change.
        run: how to run the tests.
    """
    test_patch = str(item.reference["test_patch"])
    of_tests = touched_paths(test_patch)
    candidate = _candidate(item, patch, of_tests)
    verdict = unjudged(candidate)
    if verdict is None and len(patch.encode(errors="surrogateescape")) > MAX_PATCH_BYTES:
        verdict = Verdict(outcome=Outcome.TOO_LARGE, detail=f"at most {MAX_PATCH_BYTES} bytes")
    if verdict is not None:
        return _score(verdict, candidate)
    return RepositoryTests.model_validate(
        {
            "patch": candidate.text,
            "touched": touched_paths(candidate.text),
            "test_patch": test_patch,
            "restored": of_tests,
            "runner": run["runner"],
            "files": run["files"],
            "args": run.get("args") or (),
            "env": run.get("env") or {},
        }
    )


def score_of(item: Item, patch: str, ran: RepositoryTestRun, runner: str) -> Score:
    """Score a change from its test run: 1 as hard if all required tests pass, by SWE-bench's rule."""
    verdict, candidate = _verdict(item, ran, runner), _candidate(item, patch, ())
    score, known = _score(verdict, candidate), touched_paths(str(item.reference["patch"]))
    if not verdict.resolved or not known or {*known} & {*candidate.files}:
        return score
    return score.model_copy(update={"feedback": f"{score.feedback} {ELSEWHERE}"})


def _candidate(item: Item, patch: str, of_tests: Sequence[str]) -> CandidatePatch:
    roots = item.image.import_roots if item.image else (".",)
    return candidate_patch(patch, of_tests, (".", *roots))


def _verdict(item: Item, ran: RepositoryTestRun, runner: str) -> Verdict:
    if ran.end is RunEnd.NOT_APPLIED:
        return Verdict(outcome=Outcome.NOT_APPLIED)
    if ran.end is not RunEnd.RAN:
        return Verdict(outcome=Outcome.KILLED, detail=ran.end.value)
    log_format = _format(item, runner)
    statuses = worst(log_format, ran.output)
    verdict = unreliable(log_format, ran.output)
    if verdict is not None:
        return verdict
    others, exit_status = ran.canaries.without(statuses, ran.exit_status)
    if not ran.canaries.confirm(statuses):
        # A run that stops while collecting, such as at a failed import, claims no passes.
        claims = any(CaseStatus(status).passing for status in statuses.values())
        outcome = Outcome.FORGED if claims or ran.exit_status == 0 else Outcome.INCOMPLETE
        return Verdict(outcome=outcome, detail="the judge's own tests did not end as they must")
    fail_to_pass, pass_to_pass = (_names(item.reference[key]) for key in ("fail_to_pass", "pass_to_pass"))
    return resolve(
        fail_to_pass, pass_to_pass, {test: CaseStatus(status) for test, status in others.items()}, exit_status
    )


def _score(verdict: Verdict, candidate: CandidatePatch) -> Score:
    dropped = ", ".join(f"{path} ({why})" for path, why in sorted(candidate.left_out.items())[:5])
    feedback = f"{verdict.feedback} Left out of the change: {dropped}." if dropped else verdict.feedback
    return Score(hard=float(verdict.resolved), soft=verdict.soft, feedback=feedback)


def _format(item: Item, runner: str) -> LogFormat:
    if runner != "pytest":
        return LogFormat(runner)
    return FORMATS.get(str(item.public["repo"]), LogFormat.PYTEST)


def _names(tests: object) -> list[str]:
    return [str(test) for test in tests] if isinstance(tests, list) else []
