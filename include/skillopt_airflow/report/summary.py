"""The outcome of a run, in sentences and sums, and a matrix of skills as Markdown."""

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
    """All stages together."""

    calls: int
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    usd: float | None
    """None if the price of any of them is not known."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def lost(self) -> float:
        """Share of the tries that brought no answer and were made again."""
        return 1 - self.calls / self.attempts


def total(costs: Iterable[StageCost]) -> Total:
    """Return the sums of the table of costs."""
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
    """A limit of the budget, and how much of it is spent."""

    name: str
    spent: str
    limit: str
    share: float
    """At most 1; 0 of a price that isn't known."""


def limits(view: ReportView) -> list[Limit]:
    """Return the limits that the budget has."""
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
    """Say what tests and intervals take for one observation."""
    named = {"selection": view.val_groups, "test": view.test_groups}
    counts = [f"{count:,} on the {split} split" for split, count in named.items() if count is not None]
    if counts:
        return (
            f"Tests and intervals take the items of a group for one observation; groups: {', '.join(counts)}. Where "
            "they amount to fewer than three equally large ones, there is no interval, and 0 to 1 is shown."
        )
    return (
        "The items are taken as independent of each other. If several share a document, a problem or a repository, "
        "name it (task.group, or Item.group of an adapter): otherwise intervals are too narrow, and gates say yes too "
        "often."
    )


def outcome(view: ReportView) -> str:
    """Summarize the run in a paragraph."""
    return " ".join(
        part for part in (_began(view), _best(view), _tested(view), _stated(view), _gated(view), _ended(view)) if part
    )


def cuts(view: ReportView) -> str:
    """Return the warning that stages had too many cut or empty answers; empty if none had."""
    stages = [stage for stage in view.outcomes if stage.cuts]
    if not stages:
        return ""
    scored, truncated, empty = (sum(getattr(one, name) for one in stages) for name in ("scored", "truncated", "empty"))
    together = RolloutTally(planned=scored, scored=scored, truncated=truncated, empty=empty, failures={}, reason=None)
    return f"In {', '.join(stage.stage for stage in stages)}: {together.cuts}."


def points_gained(view: ReportView) -> float:
    """Return the points (hundredths) by which the best skill beats the seed on the test split; 0 where it does not."""
    best, seed = view.test.get("best"), view.test.get("seed")
    if best is None or seed is None or min(best.coverage, seed.coverage) < 1.0:
        return 0.0
    return max(0.0, 100 * (best.score - seed.score))


def score(value: float | None) -> str:
    """Show a score with four digits, as everywhere on the page; a dash where nothing was measured."""
    return "–" if value is None else f"{value:.4f}"


def signed(value: float) -> str:
    """Show a difference of scores, with a minus of a figure's width."""
    return f"{value:+.4f}".replace("-", "−")


def usd(value: float | None) -> str:
    """Show a price; small ones need more digits than cents."""
    if value is None:
        return "not known"
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def duration(seconds: float) -> str:
    """Show a duration in two units at most."""
    if seconds < SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS)
    if minutes < MINUTES:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // MINUTES} h {minutes % MINUTES:02d} min"


def _began(view: ReportView) -> str:
    if view.init_skill == "seed":
        return ""
    return f"The run began with {view.init_skill}, which takes the place of the seed skill on this page."


def _best(view: ReportView) -> str:
    if view.best.version == 0:
        seed = score(view.seed.score)
        return (
            f"No candidate took the seed skill's place as the best one; the seed scores {seed} on the selection split."
        )
    skill = SkillDocument(view.skill)
    return (
        f"The best skill, version {view.best.version}, scores {score(view.best.score)} on the selection split, where "
        f"the seed scores {score(view.seed.score)}. It has about {tokens_of(skill):,} tokens; "
        f"its score for each 1,000 of them is {density(view.best.score, skill):.3f}."
    )


def _tested(view: ReportView) -> str:
    best, seed = view.test.get("best"), view.test.get("seed")
    if best is None or seed is None or view.best.version == 0:
        return ""
    if min(best.coverage, seed.coverage) < 1.0:
        return (
            f"On the test split only {share(best.coverage)} of the items have a score under it and "
            f"{share(seed.coverage)} under the seed, so the two are not compared."
        )
    return (
        f"On the test split, which had no say in the choice, it scores {score(best.score)} against {score(seed.score)} "
        f"({signed(best.score - seed.score)}).{_looked(view)}"
    )


def _stated(view: ReportView) -> str:
    stated = view.stated
    if stated is None:
        return ""
    return (
        f"{stated.source}, states {100 * stated.seed:.1f} to {100 * stated.best:.1f} % for {stated.target}: figures of "
        "its authors, on their test split, of which nothing was measured here."
    )


def _looked(view: ReportView) -> str:
    if not view.test_looks:
        return ""
    times = "once" if view.test_looks == 1 else f"{view.test_looks:,} times"
    return f" To publish, skills were compared on these items {times} so far."


def _gated(view: ReportView) -> str:
    accepted, candidates, ungated = view.candidates
    if not candidates:
        return "No candidate was made."
    if ungated:
        return f"{accepted} of {candidates} candidates were taken, {ungated} of them without the gate."
    return f"The gate accepted {accepted} of {candidates} candidates."


def _ended(view: ReportView) -> str:
    if view.task:
        return ""
    if view.published:
        found = view.published
        return f"The run published {found.version}, by look {found.look} at these items of the {found.split} split."
    return f"The run published nothing: {view.withheld}." if view.withheld else "The run published nothing."


STANDIN = "The stand-in is a deterministic program and no language model: its scores say nothing about a skill."


def as_markdown(matrix: SkillMatrix) -> str:
    """Return the matrix as a table with a row per skill and cell, then verdicts, types of task and missing scores."""
    first = named(matrix.skills[0])
    lines = [
        f"# {matrix.benchmark}: {len(matrix.skills)} skills in {len(matrix.cells)} cells",
        "",
        f"Mean {matrix.metric} score with a 95% interval. The difference is to {_code(first)} on the items that both "
        "have a score for, with a 95% interval, and won:lost. Tokens are those that a rollout reads and writes. "
        "Dollars are those of the scored rollouts at the target's price, without a judge.",
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
        if (found := row.result.verdict) is not None:
            answer = "yes" if found.action.accepted else f"no ({found.action})"
            yield f"- {_place(row)}: **{answer}**, {found.reason}"


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
    """Return a user's text as code that can end neither itself nor its table cell."""
    return f"`{text.replace('`', chr(39)).replace('|', '¦')}`"
