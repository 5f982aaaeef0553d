"""The page for a person who has to approve a publication or a rollback: Markdown, with every text of a model fenced."""

import re
from collections import Counter
from collections.abc import Iterable

from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.hidden_text import visible
from skillopt_airflow.core.paired import PairedTable
from skillopt_airflow.core.provenance import LineOrigin, LinesOfSkill
from skillopt_airflow.report.view import diff_of
from skillopt_airflow.store.aliases import Alias
from skillopt_airflow.training.publication import PublishContest
from skillopt_airflow.training.run import TrainingRun

MAX_DIFF_CHARS = 20_000
"""Length to which a difference is cut; the whole one is in the run's report."""
_BACKTICKS = re.compile(r"`+")


def publication_body(run: TrainingRun, name: str) -> str:
    """Return the skill's difference to the one it replaces, its scores, and where its lines come from."""
    keys = run.keys.publication(name)
    contest = run.store.get_model(keys.contest, PublishContest)
    decision = run.store.get_model(keys.gate, GateDecision)
    best = run.state(run.timeline[-1]).best.version
    lines = run.store.get_model(run.keys.line_origins(best), LinesOfSkill).lines
    return "\n\n".join(
        [
            f"Run `{run.ref.run}` of **{run.ref.benchmark}** for target `{run.config.model.target}` wants to replace "
            f"{contest.rival}.",
            f"Publish gate `{decision.policy}`: **{decision.action}**, {_plain(decision.reason)}.",
            _scores(decision.against_current, f"{decision.metric}, {contest.split} split"),
            f"Lines of the skill by their origin: {_origins(lines)}. The run's report has each of them: "
            f"`{run.store.address(run.keys.report)}`.",
            "What changes:",
            fenced(diff_of(run.document(keys.rival_skill).text, run.skill(best).text), "diff"),
        ]
    )


def rollback_body(present: Alias, target: str, reason: str, before: str, after: str, history: Iterable[Alias]) -> str:
    """Return from which version to which, why, what changes, and the alias's history."""
    moves = "\n".join(
        f"| {alias.sequence} | {alias.moved:%Y-%m-%d %H:%M} | `{alias.version}` | {_plain(alias.reason)} |"
        for alias in history
    )
    return "\n\n".join(
        [
            f"Move the champion from `{present.version}` to `{target}`: {_plain(reason)}",
            f"| move | when (UTC) | version | why |\n|---|---|---|---|\n{moves}",
            "What changes:",
            fenced(diff_of(before, after), "diff"),
        ]
    )


def fenced(text: str, language: str) -> str:
    """Return a code block that the text cannot end."""
    text = visible(text)
    shown = text if len(text) <= MAX_DIFF_CHARS else f"{text[:MAX_DIFF_CHARS]}\n[cut here]"
    longest = max((len(found) for found in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _scores(table: PairedTable, measured: str) -> str:
    return (
        "| | candidate | present | difference (95 %) | won | lost | tied |\n|---|---|---|---|---|---|---|\n"
        f"| {measured} | {table.score:.4f} | {table.other_score:.4f} | {table.delta:+.4f} "
        f"[{table.low:+.4f}, {table.high:+.4f}] | {table.wins} | {table.losses} | {table.ties} |"
    )


def _origins(lines: Iterable[LineOrigin]) -> str:
    counts = Counter(_origin(line) for line in lines)
    return ", ".join(f"{moment} {count}" for moment, count in counts.items())


def _origin(line: LineOrigin) -> str:
    if line.edit is None:
        return "seed"
    return f"{line.moment} of run {line.run}" if line.run else line.moment


def _plain(text: str) -> str:
    """Return one line that is no Markdown, also inside of a table."""
    return re.sub(r"([\\`*_\[\]<>|#!&])", r"\\\1", visible(" ".join(text.split())))
