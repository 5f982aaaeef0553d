"""Summary sentences and totals of a run, and a matrix of skills as Markdown."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from skillopt_airflow.core.run.budget import StageCost
from skillopt_airflow.core.run.history import StepSeconds
from skillopt_airflow.core.run.skill_matrix import ComparedSkill, MatrixRow, SkillMatrix
from skillopt_airflow.core.values.failure_reasons import RolloutTally, share
from skillopt_airflow.core.values.skill import SkillDocument, density, tokens_of
from skillopt_airflow.report.view import ReportView

SECONDS = 60
MINUTES = 60


class Total(NamedTuple):
    calls: int
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    usd: float | None
    """None if the price of any stage is unknown."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def lost(self) -> float:
        """Share of the attempts that failed and were retried."""
        return 1 - self.calls / self.attempts


def total(costs: Iterable[StageCost]) -> Total:
    rows = list(costs)
    prices = [row.usd for row in rows if row.usd is not None]
    return Total(
        calls=sum(row.calls for row in rows),
        attempts=sum(row.attempts for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        completion_tokens=sum(row.completion_tokens for row in rows),
        seconds=sum(row.seconds for row in rows),
        usd=sum(prices) if len(prices) == len(rows) else None,
    )


class Limit(NamedTuple):
    name: str
    spent: str
    limit: str
    share: float
    """At most 1; 0 if the price is unknown."""


def limits(view: ReportView) -> list[Limit]:
    used, budget = total(view.costs), view.budget
    rows: tuple[tuple[str, float | None, float | None, Callable[[Any], str]], ...] = (
        ("Calls", used.calls, budget.max_calls, "{:,d}".format),
        ("Tokens", used.tokens, budget.max_tokens, "{:,d}".format),
        ("US dollars", used.usd, budget.max_usd, usd),
    )
    return [
        Limit(name, show(spent), show(limit), 0.0 if spent is None else min(1.0, spent / limit))
        for name, spent, limit, show in rows
        if limit is not None
    ]


def total_seconds(parts: Iterable[StepSeconds]) -> StepSeconds:
    rows = [part.model_dump() for part in parts]
    return StepSeconds.model_validate({field: sum(row[field] for row in rows) for field in StepSeconds.model_fields})


def independence(view: ReportView) -> str:
    """Explain which items count as one observation in tests and intervals."""
    named = {"selection": view.val_groups, "test": view.test_groups}
    counts = [f"{count:,} on the {split} split" for split, count in named.items() if count is not None]
    if counts:
        return (
            f"In tests and intervals, the items of a group count as one observation; groups: {', '.join(counts)}. "
            "If they amount to fewer than three groups of equal size, there is no interval, and the page shows 0 to 1."
        )
    return (
        "Tests and intervals treat items as independent. If several items share a document, a problem, or a "
        "repository, set task.group (or Item.group in an adapter). Otherwise intervals are too narrow and gates accept "
        "too often."
    )


def outcome(view: ReportView) -> str:
    return " ".join(
        part for part in (_start(view), _best(view), _test(view), _baseline(view), _gate(view), _end(view)) if part
    )


def cuts(view: ReportView) -> str:
    """Return a warning if stages had too many truncated or empty answers, else an empty string."""
    stages = [stage for stage in view.outcomes if stage.cuts]
    if not stages:
        return ""
    scored, truncated, empty = (sum(getattr(one, name) for one in stages) for name in ("scored", "truncated", "empty"))
    tally = RolloutTally(planned=scored, scored=scored, truncated=truncated, empty=empty, failures={}, reason=None)
    return f"In {', '.join(stage.stage for stage in stages)}: {tally.cuts}."


def points_gained(view: ReportView) -> float:
    """Return the percentage points by which the best skill beats the seed on the test split, at least 0."""
    best, seed = view.test.get("best"), view.test.get("seed")
    if best is None or seed is None or min(best.coverage, seed.coverage) < 1.0:
        return 0.0
    return max(0.0, 100 * (best.score - seed.score))


def score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def signed(value: float) -> str:
    """Format a difference of scores, with a typographic minus."""
    return f"{value:+.4f}".replace("-", "−")


def usd(value: float | None) -> str:
    if value is None:
        return "not known"
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def duration(seconds: float) -> str:
    if seconds < SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS)
    if minutes < MINUTES:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // MINUTES} h {minutes % MINUTES:02d} min"


def _start(view: ReportView) -> str:
    if view.init_skill == "seed":
        return ""
    return f"The run started from {view.init_skill}, which replaces the seed skill on this page."


def _best(view: ReportView) -> str:
    if view.best.version == 0:
        return f"No candidate beat the seed on the selection split, where the seed scores {score(view.seed.score)}."
    skill = SkillDocument(view.skill)
    return (
        f"The best skill, version {view.best.version}, scores {score(view.best.score)} on the selection split; the "
        f"seed scores {score(view.seed.score)}. It has about {tokens_of(skill):,} tokens, and its score per 1,000 "
        f"tokens is {density(view.best.score, skill):.3f}."
    )


def _test(view: ReportView) -> str:
    best, seed = view.test.get("best"), view.test.get("seed")
    if best is None or seed is None or view.best.version == 0:
        return ""
    if min(best.coverage, seed.coverage) < 1.0:
        return (
            f"On the test split, only {share(best.coverage)} of the items have a score with it and "
            f"{share(seed.coverage)} with the seed, so the two aren't compared."
        )
    return (
        f"On the held-out test split, it scores {score(best.score)} against {score(seed.score)} "
        f"({signed(best.score - seed.score)}).{_looks(view)}"
    )


def _baseline(view: ReportView) -> str:
    stated = view.stated
    if stated is None:
        return ""
    return (
        f"For {stated.target}, {stated.source} reports {100 * stated.seed:.1f}% to {100 * stated.best:.1f}%. These "
        "are its authors' results on their test split, not measurements of this run."
    )


def _looks(view: ReportView) -> str:
    if not view.test_looks:
        return ""
    times = "once" if view.test_looks == 1 else f"{view.test_looks:,} times"
    return f" Publishing has compared skills on these items {times} so far."


def _gate(view: ReportView) -> str:
    accepted, candidates, ungated = view.candidates
    if not candidates:
        return "No candidate was made."
    if ungated:
        return f"{accepted} of {candidates} candidates were taken, {ungated} of them without the gate."
    return f"The gate accepted {accepted} of {candidates} candidates."


def _end(view: ReportView) -> str:
    if view.task:
        return ""
    if view.published:
        version, look, split = view.published.version, view.published.look, view.published.split
        return f"The run published {version}, by look {look} at these items of the {split} split."
    return f"The run published nothing: {view.withheld}." if view.withheld else "The run published nothing."


STANDIN = "The stand-in is a deterministic program, not a language model: its scores don't measure a skill."


def as_markdown(matrix: SkillMatrix) -> str:
    """Return a table with one row per skill and cell, then verdicts, types of task, and missing scores."""
    first = named(matrix.skills[0])
    lines = [
        f"# {matrix.benchmark}: {len(matrix.skills)} skills in {len(matrix.cells)} cells",
        "",
        f"Mean {matrix.metric} score with a 95% CI. Differences are to {_code(first)} on the items that both have a "
        "score for, with a 95% CI and won:lost. Tokens are the mean per rollout, input and output. Dollars are the "
        "price of the scored rollouts at the target's rates, without a judge.",
        *(["", f"**{STANDIN}**"] if matrix.standin else []),
        "",
        "| split | target | harness | skill | score | items | coverage | difference | tokens | $ |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, matrix.rows()),
    ]
    if matrix.policy is not None:
        lines += ["", f"Better than {_code(first)}, by policy {matrix.policy}:", "", *_verdicts(matrix)]
    if types := list(_types(matrix)):
        lines += ["", "By type of task:", "", "| in | type | score | items |", "|---|---|---|---|", *types]
    if without := list(_reasons(matrix)):
        required = f"fewer than {share(matrix.min_coverage)} of the items have one (`evaluation.min_coverage`)"
        lines += ["", f"No score, because {required}:", "", *without]
    return "\n".join([*lines, ""])


def named(skill: ComparedSkill) -> str:
    return f"{skill.source} ({skill.version})" if skill.version not in ("", skill.source) else skill.source


def _line(row: MatrixRow) -> str:
    cell, skill, result = row
    compared, tokens = result.against_first, result.cost.tokens
    measured, difference = "no score", ""
    if result.score is not None and result.low is not None and result.high is not None:
        measured = f"{score(result.score)} [{score(result.low)}, {score(result.high)}]"
    if compared is not None:
        ends = f"[{signed(compared.low)}, {signed(compared.high)}]"
        difference = f"{signed(compared.delta)} {ends}, {compared.wins}:{compared.losses}"
    cells = (
        cell.split,
        *(_code(name) for name in (cell.target, cell.harness, named(skill))),
        measured,
        f"{result.items:,}",
        share(result.coverage),
        difference,
        "" if tokens is None else f"{tokens:,.0f}",
        usd(result.cost.usd),
    )
    return f"| {' | '.join(cells)} |"


def _verdicts(matrix: SkillMatrix) -> Iterator[str]:
    for row in matrix.rows():
        if (verdict := row.result.verdict) is not None:
            answer = "yes" if verdict.action.accepted else f"no ({verdict.action})"
            yield f"- {_place(row)}: **{answer}**, {verdict.reason}"


def _types(matrix: SkillMatrix) -> Iterator[str]:
    for row in matrix.rows():
        for one in row.result.by_type:
            yield f"| {_place(row)} | {_code(one.task_type)} | {score(one.score)} | {one.items:,} |"


def _reasons(matrix: SkillMatrix) -> Iterator[str]:
    for row in matrix.undecided:
        missing = f"{row.result.missing} of {row.cell.items} items were not tried"
        yield f"- {_place(row)}: {_code(missing if row.result.reason is None else str(row.result.reason))}"


def _place(row: MatrixRow) -> str:
    cell = row.cell
    return f"{cell.split}, {_code(cell.target)}, {_code(cell.harness)}, {_code(named(row.skill))}"


def _code(text: str) -> str:
    """Return a user's string as Markdown code that is safe in a table cell."""
    return f"`{text.replace('`', chr(39)).replace('|', '¦')}`"
