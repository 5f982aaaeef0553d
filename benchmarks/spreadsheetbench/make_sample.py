"""Writes the sample: small workbooks with chores of four kinds, and what they look like once they are done.

    python -m benchmarks.spreadsheetbench.make_sample

Always the same bytes. Each kind has an easy form and one with something in it that a careless program trips over.
"""

import io
import json
import random
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from openpyxl import Workbook
from openpyxl.utils import get_column_letter

FOLDER = Path(__file__).with_name("sample")
SIZES = {"train": 14, "val": 12, "test": 12}
SEED = 20261121
MOMENT = (2026, 1, 1, 0, 0, 0)
"""Time stamp of everything in the archives."""
PROPERTIES = (
    b'<coreProperties xmlns="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"></coreProperties>'
)
"""Properties of the workbooks; the writer would put the present time into them."""
GOODS = ("Bolts", "Chairs", "Lamps", "Mugs", "Pencils", "Ropes", "Shelves", "Tables", "Vases", "Wires")
PEOPLE = ("Ada", "Bela", "Cem", "Dora", "Emil", "Femi", "Gita", "Hugo", "Ines", "Jun", "Kira", "Luca")
REGIONS = ("North", "South", "East", "West")

Rows = list[list[Any]]


class Chore(NamedTuple):
    """A record without its id, the workbook's sheets, and what the answer position has to hold."""

    instruction: str
    kind: str
    sheets: Mapping[str, Rows]
    sheet: str
    left: int
    top: int
    answer: Rows

    @property
    def position(self) -> str:
        """Return the rectangle of the answer."""
        right, bottom = self.left + len(self.answer[0]) - 1, self.top + len(self.answer) - 1
        cells = f"{get_column_letter(self.left)}{self.top}:{get_column_letter(right)}{bottom}"
        return f"'{self.sheet}'!{cells}"


def products(rng: random.Random, tricky: bool) -> Chore:
    """Return a chore of quantity times price; tricky quantities are texts with a separator of thousands."""
    rows: Rows = [["Item", "Quantity", "Price", "Total"]]
    answer: Rows = []
    for name in rng.sample(GOODS, rng.randrange(5, 9)):
        quantity, price = rng.randrange(2, 90), rng.randrange(100, 9999) / 100
        stored: int | str = quantity
        if tricky and len(rows) % 2:
            quantity += 1000
            stored = f"{quantity:,}"
        rows.append([name, stored, price])
        answer.append([round(quantity * price, 2)])
    instruction = "On sheet Orders, multiply quantity (column B) by price (column C) and put the product into column D."
    return Chore(instruction, "Cell-Level Manipulation", {"Orders": rows}, "Orders", 4, 2, answer)


def flags(rng: random.Random, tricky: bool) -> Chore:
    """Return a chore of flagging amounts above a limit; tricky ones are texts."""
    limit = rng.randrange(3, 8) * 100
    rows: Rows = [["Customer", "Amount", "Large"]]
    answer: Rows = []
    for name in rng.sample(PEOPLE, rng.randrange(5, 9)):
        amount = rng.choice([rng.randrange(20, limit), rng.randrange(limit + 1, 4000)])
        stored: int | str = amount
        if tricky and len(rows) % 3 == 1:
            amount += limit
            stored = f"{amount:,}"
        rows.append([name, stored])
        answer.append(["Yes" if amount > limit else "No"])
    instruction = f"On sheet Sales, write Yes into column C where the amount in B is above {limit}, and No elsewhere."
    return Chore(instruction, "Cell-Level Manipulation", {"Sales": rows}, "Sales", 3, 2, answer)


def dates(rng: random.Random, tricky: bool) -> Chore:
    """Return a chore of dates from texts with the day first; only tricky ones could be read the other way round."""
    rows: Rows = [["Member", "Joined", "Date"]]
    answer: Rows = []
    for name in rng.sample(PEOPLE, rng.randrange(5, 9)):
        date = datetime(2024, rng.randrange(1, 13), 13) + timedelta(days=rng.randrange(0, 15))
        if tricky and len(rows) % 2:
            date = datetime(2024, rng.randrange(1, 7), rng.randrange(7, 13))
        rows.append([name, date.strftime("%d/%m/%Y")])
        answer.append([date])
    instruction = "On sheet Members, column B holds dates as texts. Put them into column C as dates."
    return Chore(instruction, "Cell-Level Manipulation", {"Members": rows}, "Members", 3, 2, answer)


def matches(rng: random.Random, tricky: bool) -> Chore:
    """Return a chore of copying the rows of a region; a tricky one is lower-case with a blank behind, never first."""
    region = rng.choice(REGIONS)
    rows: Rows = [["Name", "Region", "Amount"]]
    answer: Rows = []
    for number, name in enumerate(rng.sample(PEOPLE, 10)):
        found = region if number in (1, 4, 6, 8) else rng.choice([one for one in REGIONS if one != region])
        stored = f"{found.lower()} " if tricky and number in (4, 8) else found
        rows.append([name, stored, rng.randrange(10, 999)])
        if found == region:
            answer.append(rows[-1])
    instruction = f"Copy the rows of sheet Data whose region is {region} to sheet Result, below its header."
    sheets = {"Data": rows, "Result": [rows[0]]}
    return Chore(instruction, "Sheet-Level Manipulation", sheets, "Result", 1, 2, answer)


KINDS = (products, flags, dates, matches)


def chores(rng: random.Random) -> Iterator[Chore]:
    """Yield chores without end, a kind after the other, every other round tricky, more or less."""
    round_number = 0
    while True:
        for offset, kind in enumerate(KINDS):
            yield kind(rng, (round_number + offset) % 2 == 0)
        round_number += 1


def workbook_bytes(sheets: Mapping[str, Rows]) -> bytes:
    """Return a workbook, without anything of the day it is written on."""
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        for row in rows:
            sheet.append(row)
    content = io.BytesIO()
    workbook.save(content)
    workbook.close()
    return _undated(content.getvalue())


def _undated(archive: bytes) -> bytes:
    """Return the archive with the same time stamp everywhere."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = PROPERTIES if name == "docProps/core.xml" else old.read(name)
            new.writestr(zipfile.ZipInfo(name, MOMENT), content, zipfile.ZIP_DEFLATED)
    return result.getvalue()


def done(chore: Chore) -> Mapping[str, Rows]:
    """Return the sheets with the answer in its place."""
    rows = [list(row) for row in chore.sheets[chore.sheet]]
    for offset, values in enumerate(chore.answer):
        while len(rows) < chore.top + offset:
            rows.append([])
        row = rows[chore.top - 1 + offset]
        row[chore.left - 1 :] = [*values]
    return {**chore.sheets, chore.sheet: rows}


def write(folder: Path, number: int, chore: Chore) -> dict[str, object]:
    """Write the two workbooks, laid out as in the benchmark, and return the record."""
    path = f"spreadsheet/{number}"
    (folder / path).mkdir(parents=True, exist_ok=True)
    (folder / path / f"1_{number}_init.xlsx").write_bytes(workbook_bytes(chore.sheets))
    (folder / path / f"1_{number}_golden.xlsx").write_bytes(workbook_bytes(done(chore)))
    return {
        "id": number,
        "instruction": chore.instruction,
        "spreadsheet_path": path,
        "instruction_type": chore.kind,
        "answer_position": chore.position,
    }


def main(folder: Path = FOLDER) -> None:
    """Write train, val and test with their workbooks."""
    rng = random.Random(SEED)  # noqa: S311
    numbered: Iterator[tuple[int, Chore]] = enumerate(chores(rng), start=1)
    for split, size in SIZES.items():
        records: Sequence[dict[str, object]] = [write(folder, *next(numbered)) for _ in range(size)]
        (folder / split).mkdir(parents=True, exist_ok=True)
        text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
        (folder / split / "items.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
