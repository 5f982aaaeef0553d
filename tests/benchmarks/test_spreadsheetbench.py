import asyncio
import datetime
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openpyxl import Workbook

from benchmarks.spreadsheetbench.adapter import BENCHMARK, Cells, answer_cells
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, Status, Trajectory

RECORD: JsonObject = {
    "id": 32438,
    "instruction": "Double {A} into B.",
    "instruction_type": "Cell-Level Manipulation",
    "answer_position": "'My Sheet'!B1:B2",
    "spreadsheet_path": "spreadsheet/32438",
    "data_position": "A1:A2",
}


@dataclass
class Folders:
    """A workspace without a sandbox, for code of this file's own."""

    inputs: str
    outputs: str
    programs: list[str] = field(default_factory=list)

    async def run_python(self, code: str) -> str:
        self.programs.append(code)
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.outputs, capture_output=True, text=True, check=False
        )
        return f"{done.stdout}{done.stderr}[exit status {done.returncode}]"


@pytest.fixture
def workspace(tmp_path: Path) -> Folders:
    folders = tmp_path / "it's in", tmp_path / "out"
    for folder in folders:
        folder.mkdir()
    workbook = Workbook()
    workbook.active["A1"] = 21  # type: ignore[index]
    workbook.save(folders[0] / "input.xlsx")
    return Folders(*map(str, folders))


def test_a_record_becomes_an_item_whose_reference_stays_on_the_host() -> None:
    item = BENCHMARK.item(RECORD)
    assert item.id == "32438"
    assert item.public == {key: RECORD[key] for key in ("instruction", "instruction_type", "answer_position")}
    found = [(file.name, file.path) for file in (*item.files, *item.reference_files)]
    folder = "spreadsheet/32438"
    assert found == [("input.xlsx", f"{folder}/*init*.xlsx"), ("golden.xlsx", f"{folder}/*golden*.xlsx")]
    with pytest.raises(NotImplementedError, match="score_files"):
        BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK))


@pytest.mark.parametrize(
    ("position", "cells"),
    [
        ("D1,D5", [Cells("", 4, 1, 4, 1), Cells("", 4, 5, 4, 5)]),
        ("Daily Numbers'!Q3:Q24", [Cells("Daily Numbers", 17, 3, 17, 24)]),
        ("'Sheet1!'A1:A50,'S 3!'A1:A50'", [Cells("Sheet1", 1, 1, 1, 50), Cells("S 3", 1, 1, 1, 50)]),
        ("'工作表1'!AO9:AZ12", [Cells("工作表1", 41, 9, 52, 12)]),
        ("'b2b, sez, de'!A5:V10", [Cells("b2b, sez, de", 1, 5, 22, 10)]),
        ("C2,'a,b'!D3", [Cells("", 3, 2, 3, 2), Cells("a,b", 4, 3, 4, 3)]),
        ("C", [Cells("", 3, 1, 3, None)]),
        ("'It''s'!A1", [Cells("It's", 1, 1, 1, 1)]),
        ("'It's'!A1", [Cells("It's", 1, 1, 1, 1)]),
        ("'Ann''s, Bob''s'!A1,'c'!$B$2:$C$3", [Cells("Ann's, Bob's", 1, 1, 1, 1), Cells("c", 2, 2, 3, 3)]),
        ("'a!b'!A1, 'c, d!'!B1", [Cells("a!b", 1, 1, 1, 1), Cells("c, d!", 2, 1, 2, 1)]),
        ("'Size 5\"'!A1", [Cells('Size 5"', 1, 1, 1, 1)]),
        ("'One!A1,'Two'!B2", [Cells("One", 1, 1, 1, 1), Cells("Two", 2, 2, 2, 2)]),
        ("a1:b2", [Cells("", 1, 1, 2, 2)]),
        ("A1:XFD1048576", [Cells("", 1, 1, 16_384, 1_048_576)]),
    ],
)
def test_answer_positions_of_all_kinds(position: str, cells: Sequence[Cells]) -> None:
    assert answer_cells(position) == cells


@pytest.mark.parametrize(
    "part",
    [
        *("B10:A1", "B2:A1", "A2:B1", "B1:A2", "C:A", "'S'!B2:A1", "A0", "A0:B2", "A1:B0", "XFE1", "A1048577"),
        *("A1:B", "A:B2", "A1:", ":B2", "1:3", "A1:B2:C3", "A-1", "A1;B2", "A12345678", "\u212a1", "A\u0661"),
        *("", " ", "Sheet1!", "'Sheet1'!", "Sheet1", "S!A1:S!B2", "'S'!A1:'S'!B2", "[Book1]S!A1"),
    ],
)
def test_a_reversed_or_malformed_answer_position_is_a_data_error(part: str) -> None:
    for position in (part, f"'My, Sheet'!A1,{part}", f"{part},A1"):
        with pytest.raises(DataError, match=rf"answer_position: .*{re.escape(repr(part.strip()))}"):
            BENCHMARK.item({**RECORD, "answer_position": f"x!A1,{position}"})


def test_the_prompt_has_instruction_and_position_and_the_skill_apart() -> None:
    system, user = BENCHMARK.messages(BENCHMARK.item(RECORD).public, "the {skill}")
    assert (system.role, system.content, user.role) == ("system", "the {skill}", "user")
    for part in ("Double {A} into B.", "'My Sheet'!B1:B2", "INPUT_PATH", "OUTPUT_PATH", "```python"):
        assert part in user.content
    task = BENCHMARK.task(BENCHMARK.item(RECORD).public)
    assert "input.xlsx" in task
    assert "output.xlsx" in task
    assert "INPUT_PATH" not in task


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("```python\na = 1\n```\nno, rather\n```py \nb = 2\n```\n```text\nc\n```", "a = 1"),
        ("It looks so:\n```\nA | B\n```\n```python\na = 1\n```\n```python\nb = 2\n```", "a = 1"),
        ("```python\na = 1\n```\nThen:\n```python\nb = ", "a = 1"),
        ("```python\nprint('cut off", "print('cut off"),
        ("``` Python \na = 1\n```", "a = 1"),
        ("```python title='x'\na = 1\n```", "a = 1"),
        ("```py\na = 1\n```\nIt prints\n```\n7\n```", "a = 1"),
        ("```json\n{}\n```\nno program", ""),
        ("1. Save it:\n   ```python\n   if x:\n       save(x)\n   ```\n2. Done.", "if x:\n    save(x)"),
        ("# It.\nfrom openpyxl import load_workbook\nx = 1", "# It.\nfrom openpyxl import load_workbook\nx = 1"),
        ("import pandas as pd, re\nx = 1", "import pandas as pd, re\nx = 1"),
        ("From what I see, the workbook is done.", ""),
    ],
)
def test_the_last_program_is_the_answer(response: str, code: str) -> None:
    assert BENCHMARK.answer(response) == code


def test_a_conversation_goes_on_until_a_workbook_is_saved(workspace: Folders) -> None:
    def told(code: str) -> str | None:
        return asyncio.run(BENCHMARK.follow_up({}, f"So:\n```python\n{code}\n```", workspace))

    load = "from openpyxl import load_workbook\nbook = load_workbook(INPUT_PATH)\n"
    assert "21" in str(told(f"{load}print(book.active['A1'].value)"))
    assert "NameError" in str(told("save(book)"))
    assert told(f"{load}book.active['B1'] = 42\nbook.save(OUTPUT_PATH)") is None
    assert (Path(workspace.outputs) / "output.xlsx").is_file()
    assert asyncio.run(BENCHMARK.follow_up({}, "I am done.", workspace)) is None
    assert len(workspace.programs) == 3


@pytest.mark.nightly
def test_the_target_sees_sheets_sizes_and_first_rows(workspace: Folders) -> None:
    workbook = Workbook()
    for number in range(9):
        sheet = workbook.create_sheet(f"S {number}")
        for row in range(7):
            sheet.append([f"row {row}", row, None, 0.5, "=A1", datetime.date(2026, 1, 2), "é" * 50, *range(20)])
    workbook.save(Path(workspace.inputs) / "input.xlsx")
    shown = asyncio.run(BENCHMARK.shown_files({}, workspace))
    assert 'Sheet "Sheet": 1 rows, 1 columns\n1: [null]\nSheet "S 0": 7 rows, 27 columns\n1: ["row 0", 0, n' in shown
    assert '"2026-01-02 00:00:00", "' + "é" * 40 + '", 0, 1, 2, 3, 4, 5, 6, 7]\n' in shown
    assert "row 4" in shown
    assert "row 5" not in shown
    assert shown.endswith("and 2 more sheets")
    # A workbook that cannot be read has no preview.
    (Path(workspace.inputs) / "input.xlsx").write_bytes(b"no workbook")
    assert asyncio.run(BENCHMARK.shown_files({}, workspace)).startswith("There is no preview")


def test_the_tool_runs_programs_with_both_paths(workspace: Folders) -> None:
    (run_python,) = BENCHMARK.tools({}, workspace)
    assert (run_python.__name__, list(run_python.__annotations__)) == ("run_python", ["code", "return"])
    assert "OUTPUT_PATH" in str(run_python.__doc__)
    printed = asyncio.run(run_python("print(INPUT_PATH, OUTPUT_PATH)"))  # type: ignore[arg-type]
    assert f"{workspace.inputs}/input.xlsx {workspace.outputs}/output.xlsx" in printed
