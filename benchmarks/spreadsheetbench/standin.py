"""The stand-in on workbooks: real programs for four kinds of chores, which the directives of the skill change.

Without them they do what careless programs do. What was wrong is read from the scorer's feedback on cells.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from local.standin.conversation import Call, Reply
from local.standin.directive import Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, ActsInShell, Tool
from local.standin.symptom_case import SymptomCase

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
_NAMES = re.compile(r"The workbook is (?P<given>[\w.-]+)\. Save the changed workbook as (?P<made>[\w.-]+),")
_IN_SHELL = """python3 - <<'PROGRAM'
import os
INPUT_PATH = os.path.join(os.environ["INPUTS"], {given!r})
OUTPUT_PATH = os.path.join(os.environ["OUTPUTS"], {made!r})
{code}
PROGRAM"""
_WRONG = re.compile(
    r"^[^\n]*!(?P<cell>[A-Z]+\d+): expected (?P<expected>[^\n]*), found (?P<found>[^\n]*)$", re.MULTILINE
)
_FIRST = re.compile(r"^Answer position: (?:.*!)?(?P<cell>[A-Z]+\d+)", re.MULTILINE)
_FORMULA, _HEADER = "a formula, which nothing calculates", 'the text "Result"'

ON_WORKBOOKS = (
    directive(
        "values",
        [r"\b(?:writ\w+|put\w*|stor\w+|enter\w*) .{0,40}\bvalues?\b"],
        [
            "Write values into the cells, never formulas, since nothing calculates them.",
            "Put calculated values where you would like to put a formula.",
        ],
        "Formulas were written, which nothing calculates.",
    ),
    directive(
        "text_numbers",
        [r"\b(?:turn\w*|convert\w*|pars\w+|treat\w*|read\w*) .{0,30}\btexts?\b.{0,40}\bnumbers?\b"],
        [
            "Turn texts that hold numbers into numbers before you calculate with them.",
            "Convert texts such as 1,200 into numbers first.",
        ],
        "Numbers that are stored as texts were passed over.",
    ),
    directive(
        "day_first",
        [r"\bdates?\b.{0,60}\bday\b.{0,20}\bfirst\b", r"\bday\b.{0,12}\bfirst\b.{0,30}\bdates?\b"],
        [
            "Read dates that are texts with the day first.",
            "In dates such as 03/04/2024 the day comes first.",
        ],
        "Day and month of dates were mixed up.",
    ),
    directive(
        "answer_start",
        [r"\b(?:first|top left|upper left) cell of the answer (?:position|range)\b"],
        [
            "Start writing at the first cell of the answer position.",
            "Put the first result into the top left cell of the answer position.",
        ],
        "The results began in another row than the answer position.",
    ),
    directive(
        "plain_texts",
        [r"\b(?:strip\w*|trim\w*|without) .{0,24}\b(?:blanks?|spaces)\b"],
        [
            "Compare texts without the blanks around them and whatever their case.",
            "Strip blanks and lower the case before you compare texts.",
        ],
        "Rows were missed whose texts differ in blanks or case.",
    ),
    directive(
        "header_row",
        [r"\bhea(?:der|ding)s?\b.{0,16}\b(?:above|over)\b.{0,24}\bresults?\b"],
        ["Write a header above the results.", "Put a heading over the results, so that they explain themselves."],
        "Nothing says what the results are.",
        tempting=True,
    ),
    directive(
        "whole_numbers",
        [r"\bround\w*\b.{0,30}\b(?:whole|integers?)\b"],
        ["Round results to whole numbers.", "Round what you calculate to integers, which are easier to read."],
        "The results have more digits than anybody reads.",
        tempting=True,
    ),
)


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
    """The groups that the pattern found in the instruction."""

    @classmethod
    def of_prompt(cls, prompt: str) -> "Chore | None":
        """Return the chore of a message; None if it has no answer position or is of no kind that the stand-in knows."""
        position = _POSITION.search(prompt)
        known = ((kind, pattern.search(prompt)) for kind, (pattern, _) in KINDS.items())
        kind, match = next(((kind, match) for kind, match in known if match), ("", None))
        if position is None or match is None:
            return None
        on_sheet, found = _ON_SHEET.search(prompt), match.groupdict()
        data = found.get("sheet") or (on_sheet["sheet"] if on_sheet else "")
        column = ord(position["column"][-1]) - ord("A") + 1
        return cls(data, position["sheet"] or data, column, int(position["row"]), kind, found)

    def program(self, active: Active) -> str:
        """Return a whole program, written as the directives ask for it."""
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


def use_tool(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Run the program once, then end."""
    if results:
        return Reply("The workbook is saved.")
    code = _code(Chore.of_prompt(task), active)
    return Reply(calls=(Call(_TOOL, json.dumps({"code": code})),))


def _code(chore: Chore | None, active: Active) -> str:
    if chore is None:
        return "from openpyxl import load_workbook\n\nload_workbook(INPUT_PATH).save(OUTPUT_PATH)\n"
    return chore.program(active)


def _product(chore: Chore, active: Active) -> tuple[str, str]:
    one, other = chore.found["one"], chore.found["other"]
    if "values" not in active:
        return "", f'    results.append([f"={one}{{row}}*{other}{{row}}"])'
    value = f'round(number(data[f"{one}{{row}}"].value) * number(data[f"{other}{{row}}"].value), 2)'
    return _number(active), f"    results.append([{value}])"


def _flag(chore: Chore, active: Active) -> tuple[str, str]:
    one, limit, yes, no = (chore.found[name] for name in ("one", "limit", "yes", "no"))
    if "values" not in active:
        return "", f'    results.append([f\'=IF({one}{{row}}>{limit},"{yes}","{no}")\'])'
    condition = f'number(data[f"{one}{{row}}"].value) > {limit}'
    return _number(active), f'    results.append(["{yes}" if {condition} else "{no}"])'


def _dates(chore: Chore, active: Active) -> tuple[str, str]:
    helper = _DATE.format(day_first="day_first" in active)
    return helper, f'    results.append([date(data[f"{chore.found["one"]}{{row}}"].value)])'


def _rows(chore: Chore, active: Active) -> tuple[str, str]:
    wanted = chore.found["wanted"]
    same = f'key.strip().lower() == "{wanted.lower()}"' if "plain_texts" in active else f'key == "{wanted}"'
    helper = f'key_column = [cell.value for cell in data[1]].index("{chore.found["key"].capitalize()}")\n'
    step = (
        "    values = [cell.value for cell in data[row]]\n"
        f"    key = values[key_column]\n    if {same}:\n        results.append(values)"
    )
    return helper, step


def _number(active: Active) -> str:
    return _NUMBER_OF_TEXT if "text_numbers" in active else _NUMBER


KINDS: Mapping[str, tuple[re.Pattern[str], Callable[[Chore, Active], tuple[str, str]]]] = {
    "product": (_PRODUCT, _product),
    "flag": (_FLAG, _flag),
    "dates": (_DATES, _dates),
    "rows": (_ROWS, _rows),
}
"""For each kind, the pattern of its instruction, and the helper and the loop's body of the program."""


class _Cell(NamedTuple):
    cell: str
    expected: str
    found: str


def symptoms(feedback: str, prompt: str) -> Mapping[str, bool]:
    """Return the directives that would have helped and whether they have to be on; empty if the cells tell nothing."""
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
    """Return whether a whole number was found in the place of one that is near to it."""
    try:
        expected, found = float(cell.expected), float(cell.found)
    except ValueError:
        return False
    return found.is_integer() and 0.0 < abs(expected - found) <= 0.5


class Workbooks(ActsInShell):
    """Requests to change a workbook, which a program carries out."""

    directives: Sequence[Directive] = ON_WORKBOOKS
    empty_advice: Sequence[tuple[str, str]] = (
        ("Look at the whole workbook before you change it.", "A hasty program may miss a sheet."),
        ("Stay with what worked: one program that loads, changes and saves.", "The rollouts that went well did that."),
    )
    tools: Mapping[str, Tool] = {_TOOL: use_tool}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks to change a workbook."""
        return prompt.startswith("Change a workbook") and _POSITION.search(prompt) is not None

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return a program in a block; it changes nothing where the stand-in doesn't know what is asked."""
        rules = ", ".join(sorted(active)) if active else "none"
        return f"Directives: {rules}.\n```python\n{_code(Chore.of_prompt(prompt), active)}```"

    def command(self, call: Call, task: str) -> str:
        """Return the program as a command of a shell, where it has to find the paths by itself."""
        names = _NAMES.search(task)
        assert names is not None, task
        return _IN_SHELL.format(given=names["given"], made=names["made"], code=json.loads(call.arguments)["code"])

    def case(self, trajectory: SeenTrajectory) -> SymptomCase:
        """Return the symptoms of the trajectory."""
        return SymptomCase(trajectory.item_id, symptoms(trajectory.feedback, trajectory.prompt))


STANDIN = Workbooks()
