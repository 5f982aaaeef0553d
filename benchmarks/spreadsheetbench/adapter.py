"""SpreadsheetBench: instructions for real workbooks, which the target follows with Python code."""

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from importlib import import_module
from textwrap import dedent
from typing import NamedTuple

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, ItemFile, JsonObject, Message, Score, Trajectory
from skillopt_airflow.tasks.protocols import Workspace
from skillopt_airflow.tasks.record_fields import identity_at, text_at

INPUT, OUTPUT, GOLDEN = "input.xlsx", "output.xlsx", "golden.xlsx"
_TASK = """Change a workbook as the instruction says.

Instruction:
{instruction}

Kind of instruction: {instruction_type}
Answer position: {answer_position}

The workbook is {input}. Save the changed workbook as {output}, with all its sheets. Only the cells of the answer
position are judged, by their values: a formula counts as an empty cell, since nothing calculates it."""
_BY_CODE = """

Reply with one Python program in a ```python block. It runs with openpyxl and pandas at hand, without network, and
finds the path of the workbook in the variable INPUT_PATH and the path to save to in OUTPUT_PATH. You are told what it
prints, and may look at the workbook before you change it; the work ends once a workbook is saved."""
SHEETS, ROWS, COLUMNS, CHARS = 8, 5, 15, 40
"""Limits of the preview: sheets, rows and columns per sheet, characters per text."""
_PREVIEW = f"""The workbook begins like this; shown are at most {SHEETS} sheets, of each the first {ROWS} rows and
{COLUMNS} columns, of a text {CHARS} characters, and of a formula the value that was kept.

{{shown}}"""
_PREVIEW_PROGRAM = f"""
import json
import warnings

from openpyxl import load_workbook

warnings.simplefilter("ignore")
book = load_workbook(INPUT_PATH, data_only=True)
for sheet in book.worksheets[:{SHEETS}]:
    rows, columns = sheet.max_row, sheet.max_column
    print(f"Sheet {{json.dumps(sheet.title, ensure_ascii=False)}}: {{rows}} rows, {{columns}} columns")
    shown = sheet.iter_rows(max_row=min(rows, {ROWS}), max_col=min(columns, {COLUMNS}), values_only=True)
    for number, cells in enumerate(shown, start=1):
        plain = [cell if cell is None or isinstance(cell, (int, float)) else str(cell)[:{CHARS}] for cell in cells]
        print(f"{{number}}: {{json.dumps(plain, ensure_ascii=False)}}")
if len(book.worksheets) > {SHEETS}:
    print(f"and {{len(book.worksheets) - {SHEETS}}} more sheets")
"""
_BLOCK = re.compile(r"```(?P<info>[^\n`]*)\n(?P<code>.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = ("python", "python3", "py", "py3")
_BEGINS_AS_PROGRAM = re.compile(
    r"(?:\s*#[^\n]*\n)*\s*(?:import\s+[\w.]+(?:\s+as\s+\w+)?\s*[,;#\n]|from\s+[\w.]+\s+import\s)"
)
"""Start of a program: an import, after optional comments."""
_PART = re.compile(r"\s*(?:'(?P<quoted>(?:[^']|'{2})+)'\s*!)?(?P<rest>[^,]*)")
"""One part of an answer position; a quoted sheet name can have any character, with doubled quotes."""
_CORNER = r"\$?([A-Z]{1,3})\$?(\d{0,7})"
_CELLS = re.compile(rf"{_CORNER}(?::{_CORNER})?", re.IGNORECASE | re.ASCII)
_NO_SHEET = re.compile(r"[][:*?/\\]")
"""Characters that aren't valid in sheet names."""
LAST_COLUMN, LAST_ROW = 16_384, 1_048_576


class Cells(NamedTuple):
    """A rectangle of the answer position, 1-based and inclusive."""

    sheet: str
    """Empty for the first sheet of the reference workbook."""
    left: int
    top: int
    right: int
    bottom: int | None
    """None for whole columns."""


class SpreadsheetBench:
    """Records of `dataset.json` in the benchmark's verified part: an instruction and a workbook."""

    runs_code = True
    text_columns: tuple[str, ...] = ("instruction", "instruction_type", "answer_position", "spreadsheet_path")
    list_columns: tuple[str, ...] = ()

    def identity(self, record: JsonObject) -> str:
        return identity_at(record, "id")

    def item(self, record: JsonObject) -> Item:
        """Return an item; its workbooks are in the folder `spreadsheet_path`, with varying names.

        Raises:
            DataError: a key is missing, or the answer position names no cells.
        """
        public: JsonObject = {
            key: text_at(record, key) for key in ("instruction", "instruction_type", "answer_position")
        }
        folder = text_at(record, "spreadsheet_path").strip("/")
        answer_cells(str(public["answer_position"]))
        return Item(
            id=self.identity(record),
            public=public,
            reference={},
            # 1_<id>_init.xlsx and 1_<id>_golden.xlsx; a few are named initial.xlsx or have another id.
            files=(ItemFile(name=INPUT, path=f"{folder}/*init*.xlsx"),),
            reference_files=(ItemFile(name=GOLDEN, path=f"{folder}/*golden*.xlsx"),),
        )

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        return (Message(role="system", content=skill), Message(role="user", content=self.task(public) + _BY_CODE))

    def task(self, public: JsonObject) -> str:
        """Return the instruction for an agent, which has its own tools to run code."""
        return _TASK.format(**public, input=INPUT, output=OUTPUT)

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Callable[..., Awaitable[str]]]:
        async def run_python(code: str) -> str:
            """Run a Python program with openpyxl and pandas at hand; returns what it prints and how it ended.

            The path of the workbook is in the variable INPUT_PATH, the path to save the result to in OUTPUT_PATH.
            Nothing else is kept between two programs but the files in the working folder.

            Args:
                code: the whole program.
            """
            return await workspace.run_python(_program(code, workspace))

        return (run_python,)

    async def shown_files(self, public: JsonObject, workspace: Workspace) -> str:
        """Return a preview: sizes and first rows of the sheets."""
        printed, _, ended = (await workspace.run_python(_program(_PREVIEW_PROGRAM, workspace))).rpartition("\n")
        if ended != "[exit status 0]":
            return "There is no preview of the workbook, since openpyxl does not read it as it is."
        return _PREVIEW.format(shown=printed.strip())

    async def follow_up(self, public: JsonObject, response: str, workspace: Workspace) -> str | None:
        """Run the program of a reply; return its output, or None if there is a result or no program."""
        code = self.answer(response)
        if not code:
            return None
        printed = await workspace.run_python(_program(code, workspace))
        if os.path.isfile(os.path.join(workspace.outputs, OUTPUT)):  # noqa: PTH113, PTH118 - async code, one stat
            return None
        return f"Your program ran and saved nothing as OUTPUT_PATH yet. Its output:\n\n{printed}"

    def answer(self, response: str) -> str:
        """Return the program of a response; empty if it has none.

        Take the first Python code block, else the first block without a language, else the whole response if it starts
        like a program.
        """
        blocks = [(block["info"].lower().split()[:1], block["code"]) for block in _BLOCK.finditer(response)]
        python = [code for info, code in blocks if info and info[0] in _PYTHON]
        plain = [code for info, code in blocks if not info]
        bare = [response] if not blocks and _BEGINS_AS_PROGRAM.match(response) else []
        # Code blocks in list items are indented.
        return next((dedent(codes[0]).strip() for codes in (python, plain, bare) if codes), "")

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Not supported, because a trajectory doesn't contain the workbook. See `score_files`."""
        raise NotImplementedError(f"item {item.id}: workbooks are judged by score_files")

    def score_files(self, item: Item, trajectory: Trajectory, produced: str, references: str) -> Score:
        """Return the share of right cells as soft, and 1 as hard if all are right."""
        # By name, because it runs on the host: the sandbox image has only this module of the folder.
        scoring = import_module(f"{__package__}.scoring")
        found, golden = os.path.join(produced, OUTPUT), os.path.join(references, GOLDEN)  # noqa: PTH118
        score: Score = scoring.compare(golden, found, answer_cells(str(item.public["answer_position"])))
        return score


def answer_cells(position: str) -> list[Cells]:
    """Parse an answer position, such as `D2:D9`, `'Sheet 1'!B5,C1:C3`, or `A:C`.

    Quotes around a sheet's name can be missing, and quotes in it can be doubled, as in `'It''s'!A1`.

    Raises:
        DataError: a part isn't a cell range, or its corners are in the wrong order or outside the sheet.
    """
    found, place = [], 0
    while place <= len(position):
        part = _PART.match(position, place)
        assert part is not None, "every text matches"
        if part["quoted"]:
            sheet, cells = part["quoted"].replace("''", "'"), part["rest"]
        else:
            sheet, _, cells = part["rest"].rpartition("!")
            sheet = sheet.strip().strip("'\"")
        match = _CELLS.fullmatch(cells.strip(" '\""))
        rectangle = _rectangle(sheet, *match.groups()) if match and not _NO_SHEET.search(sheet) else None
        if rectangle is None:
            expected = "cells such as 'Sheet1'!A1:B2, from the upper left to the lower right of a sheet"
            raise DataError(f"answer_position: expected {expected}, got {part[0].strip()!r}")
        found.append(rectangle)
        place = part.end() + 1
    return found


def _rectangle(sheet: str, left: str, top: str, right: str | None, bottom: str | None) -> Cells | None:
    """Return the cells between two corners; None if the corners are invalid."""
    if right is None or bottom is None:
        right, bottom = left, top
    cells = Cells(sheet, _number(left), int(top or 1), _number(right), int(bottom) if bottom else None)
    last = LAST_ROW if cells.bottom is None else cells.bottom
    in_order = cells.left <= cells.right <= LAST_COLUMN and 1 <= cells.top <= last <= LAST_ROW
    return cells if in_order and bool(top) == bool(bottom) else None


def _number(column: str) -> int:
    """Return 1 for column A, 27 for column AA."""
    return reduce(lambda number, letter: 26 * number + ord(letter) - ord("A") + 1, column.upper(), 0)


def _program(code: str, workspace: Workspace) -> str:
    paths = os.path.join(workspace.inputs, INPUT), os.path.join(workspace.outputs, OUTPUT)  # noqa: PTH118
    return f"INPUT_PATH, OUTPUT_PATH = {paths!r}\n{code}"


BENCHMARK = SpreadsheetBench()
