"""A matrix of skills as Markdown."""

from collections.abc import Iterator

from skillopt_airflow.core.failure_reasons import share
from skillopt_airflow.core.skill_matrix import ComparedSkill, MatrixRow, SkillMatrix
from skillopt_airflow.report.summary import score, signed, usd

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
    """Return a skill's name, with its version if that adds something."""
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
