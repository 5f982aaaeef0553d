"""The conclusion of a run that compares skills under several targets and harnesses: the matrix."""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from skillopt_airflow.core.density import tokens_of
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.failure_reasons import share
from skillopt_airflow.core.item_scores import failed_draw
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.transfer_matrix import (
    CellResult,
    ComparedSkill,
    MatrixCell,
    Measurement,
    RolloutCost,
    TransferMatrix,
)
from skillopt_airflow.core.types import Split
from skillopt_airflow.report.matrix_markdown import as_markdown
from skillopt_airflow.store.keys import TransferKeys
from skillopt_airflow.store.matrix_table import MatrixTable
from skillopt_airflow.training.data_checks import check_tables, measured_tables
from skillopt_airflow.training.evaluation import draws_of, evaluation_of_draws
from skillopt_airflow.training.matrix_cells import in_cell, names
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.spending import spent_by
from skillopt_airflow.training.transfer_plan import TransferRequest

log = logging.getLogger(__name__)

NAME_CHARS = 80
"""Characters of a skill's text that name it."""


def conclude_transfer(run: TrainingRun, request: TransferRequest) -> TransferMatrix:
    """Compute the matrix and store it as document, table and text; what has no score says why.

    Raises:
        DataError: rows cannot be concluded from, or no skill has a score anywhere; the matrix is stored then.
    """
    split, rules = request.split, run.config.evaluation
    skills = [run.skill(place) for place in range(len(request.skills))]
    places = dict(enumerate(run.record.cells))
    views = {place: in_cell(run, place) for place in places}
    by_name = {
        f"{_called(source)} ({skill.sha256[:12]})": skill for source, skill in zip(request.skills, skills, strict=True)
    }
    tables = {
        f"{names(places[place])}, {name}": rows
        for place, view in views.items()
        for name, rows in measured_tables(view, split, by_name).items()
    }
    check_tables(run, [split], tables)
    cells = []
    for place, cell in places.items():
        measured = {skill: _measured(views[place], split, skill, cell) for skill in dict.fromkeys(skills)}
        cells.append(CellResult.of(cell, [measured[skill] for skill in skills], rules))
    matrix = TransferMatrix(
        benchmark=run.ref.benchmark,
        run=run.ref.run,
        created=datetime.fromisoformat(run.record.created),
        split=split,
        metric=rules.gate_metric,
        items=len(run.item_refs(split)),
        draws=rules.draws,
        min_coverage=rules.min_coverage,
        skills=tuple(_compared(run, request, skills)),
        cells=tuple(cells),
        spent=spent_by(run),
    )
    text = as_markdown(matrix)
    key = MatrixTable(run.store, TransferKeys(run.ref.storage.prefix, run.ref.benchmark)).save(matrix, text)
    log.info("%s\n\n%s", run.store.address(key), text)
    _check_decided(matrix)
    return matrix


def _check_decided(matrix: TransferMatrix) -> None:
    """Warn of what has no score, and refuse a matrix of nothing else."""
    undecided = matrix.undecided
    words = [
        f"{row.cell.target}, {row.cell.harness}, {row.skill.source}: {share(row.result.coverage)} of the items have a "
        f"score ({share(matrix.min_coverage)} are wanted){f'; {row.result.reason}' if row.result.reason else ''}"
        for row in undecided
    ]
    if len(undecided) == len(list(matrix.rows())):
        raise DataError("\n".join(["no skill has a score in any cell:", *words]))
    for sentence in words:
        log.warning("%s", sentence)


def _measured(run: TrainingRun, split: Split, skill: SkillDocument, cell: MatrixCell) -> Measurement:
    """Return what is stored of a skill in a cell, which the run is seen under."""
    draws, items = run.config.evaluation.draws, run.item_refs(split)
    found = draws_of(run, split, skill)
    evaluation = evaluation_of_draws(run, split, found, draws)
    failed = [
        failed_draw(item, rollouts)
        for item, rollouts in found.items()
        if item not in evaluation.scores and any(not one.status.scored for one in rollouts)
    ]
    effort = [one for draw in range(draws) for one in run.rollouts.effort(run.rollout_key(split, skill, draw), items)]
    calls, read, written = (sum(one[column] for one in effort) for column in range(3))
    cost = RolloutCost(
        rollouts=len(effort),
        calls=calls,
        prompt_tokens=read,
        completion_tokens=written,
        usd=None if cell.price is None else cell.price.usd(read, written),
    )
    return Measurement(evaluation, failed, cost)


def _compared(run: TrainingRun, request: TransferRequest, skills: Sequence[SkillDocument]) -> Iterator[ComparedSkill]:
    versions = {name.rpartition("-")[2]: name for name in run.published.list_versions()}
    for source, skill in zip(request.skills, skills, strict=True):
        yield ComparedSkill(
            source=_called(source),
            version=versions.get(skill.sha256[:12], ""),
            sha256=skill.sha256,
            tokens=tokens_of(skill),
        )


def _called(source: str) -> str:
    """Return the name of a skill, of a text its beginning, in one line."""
    line = " ".join(source.split())
    return line if len(line) <= NAME_CHARS else f"{line[: NAME_CHARS - 4]} ..."
