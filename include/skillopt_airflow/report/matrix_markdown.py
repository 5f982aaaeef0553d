"""A transfer matrix as Markdown."""

from collections.abc import Iterator

from skillopt_airflow.core.failure_reasons import share
from skillopt_airflow.core.transfer_matrix import ComparedSkill, MatrixRow, TransferMatrix
from skillopt_airflow.report.summary import score, signed, usd

STANDIN = "The stand-in is a deterministic program and no language model: its scores say nothing about a skill."


def as_markdown(matrix: TransferMatrix) -> str:
    """Return the matrix as a table with a row for each skill in each cell, and why some of them have no score."""
    first = named(matrix.skills[0])
    lines = [
        f"# {matrix.benchmark}: {len(matrix.skills)} skills under other targets and harnesses",
        "",
        f"Mean {matrix.metric} score of {matrix.items:,} items of the {matrix.split} split, with a 95 % interval; the "
        f"difference is that to {_code(first)} on the items that both have a score for, with a 95 % interval, and "
        "won:lost. Tokens are those that a rollout reads and writes, dollars those of the scored rollouts at the "
        "target's price, without a judge.",
        *(["", f"**{STANDIN}**"] if matrix.standin else []),
        "",
        "| target | harness | skill | score | items | coverage | difference | tokens | $ |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_line, matrix.rows()),
    ]
    without = list(_reasons(matrix))
    if without:
        wanted = f"fewer than {share(matrix.min_coverage)} of the items have one (`evaluation.min_coverage`)"
        lines += ["", f"No score, since {wanted}:", "", *without]
    return "\n".join([*lines, ""])


def named(skill: ComparedSkill) -> str:
    """Return a skill's name, with its version where that says more."""
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
        *(_code(name) for name in (cell.target, cell.harness, named(skill))),
        measured,
        f"{result.items:,}",
        share(result.coverage),
        difference,
        "" if tokens is None else f"{tokens:,.0f}",
        usd(result.cost.usd),
    )
    return f"| {' | '.join(cells)} |"


def _reasons(matrix: TransferMatrix) -> Iterator[str]:
    for cell, skill, result in matrix.undecided:
        why = f"{result.missing} of {matrix.items} items were not tried" if result.reason is None else result.reason
        yield f"- {_code(cell.target)}, {_code(cell.harness)}, {_code(named(skill))}: {_code(str(why))}"


def _code(text: str) -> str:
    """Return a text of somebody else's as code, which it cannot end, nor the cell that it is in."""
    return f"`{text.replace('`', chr(39)).replace('|', '¦')}`"
