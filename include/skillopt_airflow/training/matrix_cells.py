"""A run of several targets and harnesses, seen under one of them."""

from skillopt_airflow.core.transfer_matrix import MatrixCell
from skillopt_airflow.training.run import TrainingRun


def in_cell(run: TrainingRun, place: int) -> TrainingRun:
    """Return the run under the target and the harness of a cell, by its place; all else is the same."""
    cell = run.record.cells[place]
    overrides = {**run.ref.overrides, "model.target": cell.target, "model.harness": cell.harness}
    prices = {**run.record.prices, "target": cell.price}
    ref = run.ref.model_copy(update={"overrides": overrides, "prices": prices})
    return TrainingRun(ref, run.connections, run.store)


def one_for_each_target(run: TrainingRun) -> list[TrainingRun]:
    """Return the run under each of its targets, whose model calls have accounts of their own."""
    cells = run.record.cells
    if not cells:
        return [run]
    first = {cell.target: place for place, cell in reversed(list(enumerate(cells)))}
    return [in_cell(run, place) for place in sorted(first.values())]


def names(cell: MatrixCell) -> str:
    """Return a cell's target and harness for a log."""
    return f"{cell.target}, {cell.harness}"
