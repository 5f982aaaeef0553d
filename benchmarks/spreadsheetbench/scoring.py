"""Compare a workbook with its reference by cell values, like the benchmark's own evaluation.

Runs in a limited process, because a model's code wrote the workbook.
"""

import datetime
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillopt_airflow.core.values.types import Score

from .adapter import Cells

if TYPE_CHECKING:
    from openpyxl.workbook.workbook import Workbook

EPOCH = datetime.datetime(1899, 12, 30)
"""Day 0 of spreadsheet dates."""
NAMED_CELLS = 12
"""Wrong cells in the feedback."""
VALUE_CHARS = 60


class Cell(NamedTuple):
    """A cell of the answer position with both values."""

    name: str
    expected: object
    found: object

    @property
    def right(self) -> bool:
        return equal(self.expected, self.found)


def compare(golden: str, produced: str, ranges: Sequence[Cells]) -> Score:
    """Score the workbook `produced`; a formula has its cached value, if any."""
    reference = _load(golden)
    if not Path(produced).is_file():
        left = ", ".join(sorted(path.name for path in Path(produced).parent.iterdir())[:5])
        return _wrong(f"no {Path(produced).name} was saved{f', only {left}' if left else ''}")
    try:
        workbook = _load(produced)
    except Exception as error:  # noqa: BLE001 - a hostile or broken file can raise anything
        return _wrong(f"{Path(produced).name} cannot be read as a workbook: {type(error).__name__}: {error}"[:300])
    ranges = [cells._replace(sheet=cells.sheet or reference.sheetnames[0]) for cells in ranges]
    missing = sorted({cells.sheet for cells in ranges} - {*_sheets(workbook)})
    judged = [cell for cells in ranges for cell in _cells(reference, workbook, cells)]
    wrong = [cell for cell in judged if not cell.right]
    hard = float(not wrong and not missing)
    soft = (len(judged) - len(wrong)) / max(1, len(judged))
    return Score(hard=hard, soft=soft, feedback=_feedback(missing, wrong, len(judged), _formulas(produced, wrong)))


def equal(expected: object, found: object) -> bool:
    """Compare type and value after `plain`; an empty string equals an empty cell."""
    one, other = (None if value == "" else value for value in (plain(expected), plain(found)))
    return type(one) is type(other) and one == other


def plain(value: object) -> object:
    """Normalize a value.

    Numbers, including strings and booleans, have two decimals. Dates become numbers of days, times have minutes.
    """
    if isinstance(value, datetime.time):
        return str(value)[:-3]
    if isinstance(value, datetime.datetime):
        since = value - EPOCH
        return float(round(since.days + since.seconds / 86400.0))
    if isinstance(value, int | float | str):
        try:
            number = round(float(value), 2)
        except (ValueError, OverflowError):
            return value
        # The string NaN would become a number that differs from itself.
        return str(value) if math.isnan(number) else number
    return value


def _load(path: str) -> "Workbook":
    import openpyxl

    return openpyxl.load_workbook(path, data_only=True)


def _sheets(workbook: "Workbook") -> list[str]:
    return [sheet.title for sheet in workbook.worksheets]


def _cells(reference: "Workbook", workbook: "Workbook", cells: Cells) -> Iterator[Cell]:
    """Yield the cells of a rectangle with both values; cells of a missing sheet are empty."""
    from openpyxl.utils import get_column_letter

    sheets = [book[cells.sheet] if cells.sheet in _sheets(book) else None for book in (reference, workbook)]
    bottom = cells.bottom or max(sheet.max_row if sheet else 1 for sheet in sheets)
    for row in range(cells.top, bottom + 1):
        for column in range(cells.left, cells.right + 1):
            expected, found = (sheet.cell(row, column).value if sheet else None for sheet in sheets)
            yield Cell(f"{cells.sheet}!{get_column_letter(column)}{row}", expected, found)


def _formulas(path: str, wrong: Iterable[Cell]) -> frozenset[str]:
    """Return the names of wrong cells with a formula that has no cached value."""
    import openpyxl

    empty = [cell.name for cell in wrong if cell.found is None][:NAMED_CELLS]
    if not empty:
        return frozenset()
    workbook: Any = openpyxl.load_workbook(path)
    places = [(name, *name.rsplit("!", 1)) for name in empty]
    return frozenset(
        name for name, sheet, cell in places if sheet in _sheets(workbook) and workbook[sheet][cell].data_type == "f"
    )


def _feedback(missing: Sequence[str], wrong: Sequence[Cell], total: int, formulas: frozenset[str]) -> str:
    if not (wrong or missing):
        return f"all {total} cells of the answer position are right"
    lines = [f"the sheet {sheet!r} is missing" for sheet in missing]
    lines.append(f"{len(wrong)} of {total} cells of the answer position are wrong")
    for cell in wrong[:NAMED_CELLS]:
        found = "a formula, which nothing calculates" if cell.name in formulas else _shown(cell.found)
        lines.append(f"{cell.name}: expected {_shown(cell.expected)}, found {found}")
    if len(wrong) > NAMED_CELLS:
        lines.append(f"and {len(wrong) - NAMED_CELLS} more")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "an empty cell"
    if isinstance(value, datetime.datetime | datetime.time | datetime.date):
        return f"the {'time' if isinstance(value, datetime.time) else 'date'} {value}"
    if isinstance(value, str):
        return f'the text "{value[:VALUE_CHARS]}"'
    return f"{value!r}"[:VALUE_CHARS]


def _wrong(why: str) -> Score:
    return Score(hard=0.0, soft=0.0, feedback=why)
