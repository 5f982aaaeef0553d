"""What wrong cells of a workbook point to, as the stand-in's optimizer reads the scorer's feedback on them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_WRONG = re.compile(
    r"^[^\n]*!(?P<cell>[A-Z]+\d+): expected (?P<expected>[^\n]*), found (?P<found>[^\n]*)$", re.MULTILINE
)
_FIRST = re.compile(r"^Answer position: (?:.*!)?(?P<cell>[A-Z]+\d+)", re.MULTILINE)
_FORMULA, _HEADER = "a formula, which nothing calculates", 'the text "Result"'


class _Cell(NamedTuple):
    cell: str
    expected: str
    found: str


def symptoms(feedback: str, prompt: str) -> Mapping[str, bool]:
    """Directives that would have helped by whether they have to be on or off; empty if the cells tell nothing."""
    wrong = [_Cell(*match.groups()) for match in _WRONG.finditer(feedback)]
    first = _FIRST.search(prompt)
    if not wrong or first is None:
        return {}
    if any(cell.found == _HEADER for cell in wrong):
        return {"header_row": False}
    if any(cell.found == _FORMULA for cell in wrong):
        return {"values": True}
    if any(cell.expected.startswith("the date") for cell in wrong):
        return {"day_first": True}
    if any(_rounded(cell) for cell in wrong):
        return {"whole_numbers": False}
    if "Copy the rows" in prompt:
        return {"answer_start": True} if wrong[0].cell == first["cell"] else {"plain_texts": True}
    return {"text_numbers": True}


def _rounded(cell: _Cell) -> bool:
    """Whether a whole number was found in the place of one that is near to it."""
    try:
        expected, found = float(cell.expected), float(cell.found)
    except ValueError:
        return False
    return found.is_integer() and 0.0 < abs(expected - found) <= 0.5
