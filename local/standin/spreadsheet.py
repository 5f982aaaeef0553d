"""The stand-in on workbooks: real programs for four kinds of chores, which the directives of the skill change.

Without them they do what careless programs do.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from local.standin.conversation import Call, Reply

_POSITION = re.compile(r"^Answer position: (?:'?(?P<sheet>[^'!\n]+)'?!)?(?P<column>[A-Z]+)(?P<row>\d+)", re.MULTILINE)
_ON_SHEET = re.compile(r"\b[Oo]n sheet (?P<sheet>\w+)")
_PRODUCT = re.compile(r"multiply \w+ \(column (?P<one>[A-Z])\) by \w+ \(column (?P<other>[A-Z])\)")
_FLAG = re.compile(
    r"write (?P<yes>\w+) into column \w+ where \w+ \w+ in (?P<one>[A-Z]) is above (?P<limit>\d+), and (?P<no>\w+)"
)
_DATES = re.compile(r"column (?P<one>[A-Z]) holds dates as texts")
_ROWS = re.compile(r"Copy the rows of sheet (?P<sheet>\w+) whose (?P<key>\w+) is (?P<wanted>\w+) to sheet (?P<to>\w+)")
_TOOL = "run_python"

_NUMBER = """
def number(value):
    return value if isinstance(value, int | float) else 0
"""
_NUMBER_OF_TEXT = """
def number(value):
    return float(value.replace(",", "")) if isinstance(value, str) else value
"""
_DATE = """
def date(text):
    first, second, year = (int(part) for part in text.split("/"))
    day, month = (first, second) if {day_first} or first > 12 else (second, first)
    return datetime(year, month, day)
"""
_PROGRAM = """from datetime import datetime

from openpyxl import load_workbook

book = load_workbook(INPUT_PATH)
data = book["{data}"]
{helper}
results = []
for row in range(2, data.max_row + 1):
{step}
{then}
sheet = book["{sheet}"]
for offset, values in enumerate(results):
    for beside, value in enumerate(values):
        sheet.cell({row} + offset, {column} + beside, value)
book.save(OUTPUT_PATH)
"""


@dataclass(frozen=True)
class Chore:
    """A request to change a workbook, as far as the stand-in understands it."""

    data: str
    """The sheet that the values come from."""
    sheet: str
    """The sheet of the answer position."""
    column: int
    row: int
    kind: str
    found: Mapping[str, str]
    """What the instruction says of it."""

    @classmethod
    def of_prompt(cls, prompt: str) -> "Chore | None":
        """The chore of a user message; None if it names no answer position or is of no kind that the stand-in knows."""
        position = _POSITION.search(prompt)
        known = ((kind, pattern.search(prompt)) for kind, (pattern, _) in KINDS.items())
        kind, match = next(((kind, match) for kind, match in known if match), ("", None))
        if position is None or match is None:
            return None
        on_sheet, found = _ON_SHEET.search(prompt), match.groupdict()
        data = found.get("sheet") or (on_sheet["sheet"] if on_sheet else "")
        column = ord(position["column"][-1]) - ord("A") + 1
        return cls(data, position["sheet"] or data, column, int(position["row"]), kind, found)

    def program(self, active: frozenset[str]) -> str:
        """A whole program, written as the directives ask for it."""
        helper, step = KINDS[self.kind][1](self, active)
        then = 'results.insert(0, ["Result"])\n' if "header_row" in active else ""
        if "whole_numbers" in active:
            then += "results = [[round(one) if isinstance(one, float) else one for one in row] for row in results]\n"
        # Without the directive, rows that are copied start at the top of their sheet.
        astray = self.kind == "rows" and "answer_start" not in active
        row = 1 if astray else self.row
        return _PROGRAM.format(
            data=self.data, helper=helper, step=step, then=then, sheet=self.sheet, row=row, column=self.column
        )


def is_workbook_task(prompt: str) -> bool:
    """Whether a user message asks to change a workbook."""
    return prompt.startswith("Change a workbook") and _POSITION.search(prompt) is not None


def reply(active: frozenset[str], prompt: str) -> str:
    """A program in a block; one that changes nothing where the stand-in doesn't know what is asked."""
    chore = Chore.of_prompt(prompt)
    rules = ", ".join(sorted(active)) if active else "none"
    return f"Directives: {rules}.\n```python\n{_code(chore, active)}```"


def use_tool(active: frozenset[str], prompt: str, results: Sequence[str]) -> Reply:
    """Run the program once, then end."""
    if results:
        return Reply("The workbook is saved.")
    code = _code(Chore.of_prompt(prompt), active)
    return Reply(calls=(Call(_TOOL, json.dumps({"code": code})),))


def _code(chore: Chore | None, active: frozenset[str]) -> str:
    if chore is None:
        return "from openpyxl import load_workbook\n\nload_workbook(INPUT_PATH).save(OUTPUT_PATH)\n"
    return chore.program(active)


def _product(chore: Chore, active: frozenset[str]) -> tuple[str, str]:
    one, other = chore.found["one"], chore.found["other"]
    if "values" not in active:
        return "", f'    results.append([f"={one}{{row}}*{other}{{row}}"])'
    value = f'round(number(data[f"{one}{{row}}"].value) * number(data[f"{other}{{row}}"].value), 2)'
    return _number(active), f"    results.append([{value}])"


def _flag(chore: Chore, active: frozenset[str]) -> tuple[str, str]:
    one, limit, yes, no = (chore.found[name] for name in ("one", "limit", "yes", "no"))
    if "values" not in active:
        return "", f'    results.append([f\'=IF({one}{{row}}>{limit},"{yes}","{no}")\'])'
    condition = f'number(data[f"{one}{{row}}"].value) > {limit}'
    return _number(active), f'    results.append(["{yes}" if {condition} else "{no}"])'


def _dates(chore: Chore, active: frozenset[str]) -> tuple[str, str]:
    helper = _DATE.format(day_first="day_first" in active)
    return helper, f'    results.append([date(data[f"{chore.found["one"]}{{row}}"].value)])'


def _rows(chore: Chore, active: frozenset[str]) -> tuple[str, str]:
    wanted = chore.found["wanted"]
    same = f'key.strip().lower() == "{wanted.lower()}"' if "plain_texts" in active else f'key == "{wanted}"'
    helper = f'key_column = [cell.value for cell in data[1]].index("{chore.found["key"].capitalize()}")\n'
    step = (
        "    values = [cell.value for cell in data[row]]\n"
        f"    key = values[key_column]\n    if {same}:\n        results.append(values)"
    )
    return helper, step


def _number(active: frozenset[str]) -> str:
    return _NUMBER_OF_TEXT if "text_numbers" in active else _NUMBER


KINDS: Mapping[str, tuple[re.Pattern[str], Callable[[Chore, frozenset[str]], tuple[str, str]]]] = {
    "product": (_PRODUCT, _product),
    "flag": (_FLAG, _flag),
    "dates": (_DATES, _dates),
    "rows": (_ROWS, _rows),
}
"""By kind: how the instruction is recognised, and the helper and the loop's body of the program."""
