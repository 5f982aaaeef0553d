"""Rollbacks, and the pages for approvals, with all model text fenced."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from skillopt_airflow.core.config.train_config import TrainConfig, changed_paths, values_by_path
from skillopt_airflow.core.errors import ConfigError, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.gate.paired import PairedTable
from skillopt_airflow.core.values.provenance import LineOrigin, LinesOfSkill
from skillopt_airflow.core.values.skill import diff_of
from skillopt_airflow.core.values.text import visible
from skillopt_airflow.core.values.types import Value
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.training.champion.publication import PublicationPlan, as_published
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import TrainingRun

MAX_DIFF_CHARS = 100_000
"""Maximum length of a diff."""
MAX_VALUE_CHARS = 300
"""Maximum length of a setting's value."""
_BACKTICKS = re.compile(r"`+")


def publication_body(run: TrainingRun, name: str) -> str:
    """Return the settings that differ from benchmark.yaml, the scores, and the diff of the two skills."""
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublicationPlan)
    decision = run.store.get_model(keys.gate, GateDecision)
    own = benchmark_config(run.ref.benchmark, run.config.data.uri)
    best = run.state(run.timeline[-1]).best.version
    lines = run.store.get_model(run.keys.line_origins(best), LinesOfSkill).lines
    origins = ", ".join(f"{moment} {count}" for moment, count in Counter(map(_origin, lines)).items())
    return "\n\n".join(
        [
            f"Run `{run.ref.run}` of **{run.ref.benchmark}** for target `{run.config.model.target}` wants to replace "
            f"{contest.rival}.",
            _settings(as_published(run, name).config.model_copy(update={"publishing": contest.rules}), own),
            f"Publish gate `{decision.policy}`: **{decision.action}**, {_plain(decision.reason)}.",
            _scores(decision.against_current, f"{decision.metric}, {contest.split} split"),
            f"Lines of the skill by their origin: {origins}. The run's report has each of them: "
            f"`{run.store.address(run.keys.report)}`.",
            _difference(
                run.document(keys.rival_skill).text,
                run.skill(best).text,
                [run.store.address(key) for key in (keys.rival_skill, run.keys.skill(best))],
            ),
        ]
    )


def rollback_body(present: Alias, target: str, reason: str, before: str, after: str, history: Iterable[Alias]) -> str:
    """Return the two versions, the reason, the diff, and the alias's history."""
    moves = "\n".join(
        f"| {alias.sequence} | {alias.moved:%Y-%m-%d %H:%M} | `{alias.version}` | {_plain(alias.reason)} |"
        for alias in history
    )
    return "\n\n".join(
        [
            f"Move the champion from `{present.version}` to `{target}`: {_plain(reason)}",
            f"| move | when (UTC) | version | why |\n|---|---|---|---|\n{moves}",
            _difference(before, after, [f"versions/{version}" for version in (present.version, target)]),
        ]
    )


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence the text can't close."""
    text = visible(text)
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _difference(before: str, after: str, places: Sequence[str]) -> str:
    """Return the diff; a cut one also names its full length and both skills' keys."""
    diff = diff_of(before, after)
    cut = len(diff) > MAX_DIFF_CHARS
    shown = f"{diff[:MAX_DIFF_CHARS]}\n[cut here]" if cut else diff
    heading = "What changes:"
    if cut:
        heading = (
            f"**Only the first {MAX_DIFF_CHARS:,} of {len(diff):,} characters of the changes are shown.** Before you "
            f"approve, compare the whole skills: `{'` and `'.join(places)}`."
        )
    return f"{heading}\n\n{fenced(shown, 'diff')}"


def _settings(config: TrainConfig, own: TrainConfig) -> str:
    """Return the settings that differ from benchmark.yaml, each with both values."""
    was, now = values_by_path(own), values_by_path(config)
    rows = [f"| `{path}` | {_value(was[path])} | {_value(now[path])} |" for path in changed_paths(own, config)]
    if not rows:
        return "All settings are those of benchmark.yaml."
    heading = f"**Settings that differ from benchmark.yaml: {len(rows)}**"
    return "\n".join([heading, "", "| | benchmark.yaml | this run |", "|---|---|---|", *rows])


def _value(value: object) -> str:
    text = "not set" if value is None else visible(repr(value))
    more = f" [{len(text) - MAX_VALUE_CHARS:,} more characters]" if len(text) > MAX_VALUE_CHARS else ""
    return _plain(text[:MAX_VALUE_CHARS] + more)


def _scores(table: PairedTable, measured: str) -> str:
    return (
        "| | candidate | current | difference (95%) | won | lost | tied |\n|---|---|---|---|---|---|---|\n"
        f"| {measured} | {table.score:.4f} | {table.other_score:.4f} | {table.delta:+.4f} "
        f"[{table.low:+.4f}, {table.high:+.4f}] | {table.wins} | {table.losses} | {table.ties} |"
    )


def _origin(line: LineOrigin) -> str:
    if line.edit is None:
        return "seed"
    return f"{line.moment} of run {line.run}" if line.run else line.moment


def _plain(text: str) -> str:
    """Return the text as one line with Markdown escaped, also for tables."""
    return re.sub(r"([\\`*_\[\]<>|#!&])", r"\\\1", visible(" ".join(text.split())))


log = logging.getLogger(__name__)


class RollbackRequest(Value):
    """A checked rollback request."""

    run: str
    """Name of the requesting DAG run."""
    version: str
    reason: str
    approval: bool
    """True if a person must approve."""
    seen: Alias
    """The champion to roll back."""


def rollback_request(
    artifacts: ArtifactStore, run: str, version: str, reason: str, approval: bool, leaving: str | None = None
) -> RollbackRequest:
    """Check a rollback request.

    Raises:
        ConfigError: there is no champion, it already is `version` or isn't `leaving`, or `version` doesn't exist.
        StoreError: the stored version was changed.
    """
    champion = artifacts.champion.read()
    if champion is None:
        raise ConfigError("version: nothing is published for this benchmark and target, so nothing can be rolled back")
    if champion.version == version:
        raise ConfigError(f"version: {version} is the champion already")
    if leaving is not None and champion.version != leaving:
        raise ConfigError(f"leaving: {leaving} is not the champion any more, {champion.version} is")
    try:
        artifacts.read(version)
    except ObjectMissing:
        there = ", ".join(artifacts.list_versions())
        raise ConfigError(f"version: {version} is not a complete version. Available: {there}") from None
    return RollbackRequest(run=run, version=version, reason=reason, approval=approval, seen=champion)


def describe(artifacts: ArtifactStore, request: RollbackRequest) -> str:
    """Return the page for the approval, even if the champion's text was changed or lost."""
    before, problem = "", ""
    try:
        before = artifacts.read(request.seen.version).skill
    except StoreUnavailable:
        raise
    except StoreError as error:
        problem = f"The current champion cannot be read: {error}\n\n"
    after, history = artifacts.read(request.version).skill, artifacts.champion.history()
    return problem + rollback_body(request.seen, request.version, request.reason, before, after, history)


def roll_back(artifacts: ArtifactStore, request: RollbackRequest) -> Alias:
    """Move the champion; safe to repeat. Raise Conflict if it moved since the request."""
    alias = artifacts.roll_back(request.version, request.run, request.reason, request.seen)
    log.info("champion %s, before %s: %s", alias.version, alias.previous, alias.reason)
    for move in artifacts.champion.history():
        log.info("move %d, %s: %s, %s", move.sequence, move.moved.isoformat(), move.version, move.reason)
    return alias
